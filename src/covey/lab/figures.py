"""What is measured in a run of a world, and what it is measured in."""

from msgspec import Struct

TIME, PERCENT, NUMBER = "time", "%", ""
FIGURES = {  # as columns of a table: fields of `Numbers`
    "turnaround": TIME,
    "tail": TIME,
    "replicas": PERCENT,
    "waste": PERCENT,
    "repeats": PERCENT,
    "failed": PERCENT,
    "lost": PERCENT,
    "wait": TIME,
    "longest_wait": TIME,
    "work": TIME,
    "redundant": TIME,
    "speedup": NUMBER,
    "jobs": NUMBER,
    "enrolled": NUMBER,
    "pilots": NUMBER,
    "filling": PERCENT,
    "core_hours": NUMBER,
}
COLUMNS = (
    "turnaround",
    "tail",
    "replicas",
    "waste",
    "repeats",
    "failed",
)  # unless others are named
WORDS = "says"  # key of a table of a paper's figures: what it says in words


class Numbers(Struct, frozen=True, kw_only=True):
    """The figures of one bag in one run: times in seconds, shares in percent of its tasks."""

    seed: int
    turnaround: float
    tail: float  # the time of the last tenth of the tasks
    replicas: float  # attempts that were sent while another attempt was still expected
    waste: float  # attempts that were stopped, or ended too late: another had the result
    discarded: float  # the part of the waste that ran to its end
    repeats: float  # attempts that were sent after a deadline
    lost: float
    failed: float
    given_up: int  # tasks without a result
    wait: float  # mean, from the bag's submission to the start of a task that led to a result
    longest_wait: float
    work: float  # of all tasks, as far as it led to a result
    redundant: float  # … and as far as it did not
    speedup: float  # work / turnaround
    # Of the whole world, whichever bag the pilots were for:
    jobs: int  # site jobs that were submitted
    enrolled: int  # pilots
    pilots: float  # mean number, until the tails begin
    filling: float  # percent of the slots' time in which they had a task, until the tails begin
    core_hours: float  # of site jobs, from start to end
    stopped: str = ""  # why the bag did not finish
