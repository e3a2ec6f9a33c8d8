"""Histories of hosts and sites: successes, failures and speeds so far."""

from msgspec import Struct


class Ban(Struct, frozen=True, omit_defaults=True):
    """A host gets no tasks of one owner for a while."""

    since: float  # the first failure since the last success
    until: float = 0.0
    times: int = 0


class History(Struct, omit_defaults=True):
    """The history of a host, over all owners. Counts marked as decayed lose half their weight in
    `host_history.HALF_LIFE`; `at` is when they were last brought up to date."""

    site: str = ""
    at: float = 0.0
    done: float = 0.0  # decayed
    failed: float = 0.0  # decayed: a task's failure or the host's
    lost: float = 0.0  # decayed: with its pilot
    cpu_seconds: float = 0.0  # decayed: of what ended well
    turnaround: float = 0.0  # from sending to delivery, a moving mean
    speed: float = 1.0  # of its tasks, compared to others of their class; a moving mean
    day: int = 0  # since 1970, of the next two
    done_today: int = 0
    failed_today: int = 0
    row: int = 0  # failures since the last success
    last_done: float = 0.0
    last_failed: float = 0.0
    bans: dict[str, Ban] = {}  # by owner


class SiteHistory(Struct, omit_defaults=True):
    """The history of all pilots of a site. Sums are decayed, like the counts of a `History`."""

    log_speed: float = 0.0  # of its tasks, compared to those of other sites: log(1.0) is average
    speed_weight: float = 0.0  # how many tasks that comes from
    busy: float = 0.0  # seconds of slots in which a task ran
    slots: float = 0.0  # … of all slots
    at: float = 0.0  # when the sums were last brought up to date
