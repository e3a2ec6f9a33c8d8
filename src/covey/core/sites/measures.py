"""What is known about a site from the jobs that were submitted there and from its batch system.

`None` means that nothing is known yet. A caller decides what an unknown site is worth to it: here
nothing is guessed.
"""

import msgspec


class SiteMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one site, for one owner's jobs or for everybody's."""

    # From our own jobs, the recent ones counting more.
    jobs: int = 0  # how many jobs these figures come from, waiting ones included
    waiting: int = 0  # … of which still wait
    # Wait: seconds from submission to start. A job that still waits is a lower bound.
    wait_median: float | None = None
    wait_p90: float | None = None
    wait_at_least: bool = False  # the median is a lower bound: too few jobs have started
    wait_trend: float | None = None  # seconds that an hour adds; negative: waits become shorter
    start_overhead: float | None = None  # seconds from the site's start to the pilot's enrolment
    lifetime: float | None = None  # seconds that a pilot stayed
    failure_rate: float | None = None  # share of ended jobs that failed
    preemption_rate: float | None = None  # share of ended jobs that the site took away
    speed: float | None = None  # of tasks, relative to all sites; 1.0 is the average
    filling_rate: float | None = None  # share of the slots' time in which a task ran
    measured_at: float | None = None  # server time of the newest observation

    # What the batch system said when it was asked last.
    free_cores: int | None = None
    total_cores: int | None = None
    free_nodes: int | None = None
    total_nodes: int | None = None
    queue_length: int | None = None  # jobs of everybody that wait there
    capacity_at: float | None = None  # server time of that answer


UNKNOWN = SiteMeasures()
