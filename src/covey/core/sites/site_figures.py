"""The figures of a site, each with the name and the words by which it is known everywhere: in
policies, on the command line and in /metrics."""

from typing import NamedTuple

SECONDS, SHARE, RATIO, COUNT = "seconds", "share", "ratio", "count"


class SiteFigure(NamedTuple):
    """`field` is that of `SiteMeasures`, `name` the attribute of `Site`."""

    name: str
    field: str
    kind: str
    text: str


FIGURES = (
    SiteFigure(
        "Wait",
        "wait_median",
        SECONDS,
        "seconds that half of the pilots wait there at most; those that still wait count, too",
    ),
    SiteFigure("WaitP90", "wait_p90", SECONDS, "seconds that nine in ten pilots wait at most"),
    SiteFigure(
        "WaitTrend",
        "wait_trend",
        SECONDS,
        "seconds by which the wait grows in an hour; negative: it becomes shorter",
    ),
    SiteFigure(
        "StartOverhead",
        "start_overhead",
        SECONDS,
        "seconds from the start of a site job to the enrolment of its pilot",
    ),
    SiteFigure("Lifetime", "lifetime", SECONDS, "seconds that a pilot stays"),
    SiteFigure("FailureRate", "failure_rate", SHARE, "fraction of its recent jobs that failed"),
    SiteFigure(
        "PreemptionRate",
        "preemption_rate",
        SHARE,
        "fraction of its recent jobs that the site took away while their pilots worked",
    ),
    SiteFigure(
        "Speed",
        "speed",
        RATIO,
        "how fast tasks run there, compared to other sites; 1: as fast as the average site",
    ),
    SiteFigure("Filling", "filling_rate", SHARE, "fraction of its slots' time with a task"),
    SiteFigure("FreeCores", "free_cores", COUNT, "free cores, as its batch system says"),
    SiteFigure("TotalCores", "total_cores", COUNT, "cores, as its batch system says"),
    SiteFigure("FreeNodes", "free_nodes", COUNT, "free nodes, as its batch system says"),
    SiteFigure("TotalNodes", "total_nodes", COUNT, "nodes, as its batch system says"),
    SiteFigure(
        "QueueLength",
        "queue_length",
        COUNT,
        "jobs of everybody that wait there, as its batch system says",
    ),
)
