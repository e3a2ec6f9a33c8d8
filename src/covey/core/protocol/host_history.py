"""Histories of hosts: how often tasks fail there, how long they take, how much work was done.

The rules:
- Counts decay: what happened `HALF_LIFE` ago weighs half. They are brought up to date when
  something is added, so reading them costs one power.
- A new host is expected to be like its site, a new site like all sites, and all sites like
  `PRIOR_ERRORS`: a rate is a mean that begins with `PRIOR_WEIGHT` attempts of the next larger
  group. So every rate is defined.
- A task that was returned or cancelled does not count. A task that was lost with its pilot counts
  as lost, not as failed: it tells how long the host lives, not whether it works. A task that is
  not back by its deadline counts as lost, too, once (GridBot counts it as preempted), though it may
  still come.
- Sites are summed up once a second.
- A history is written at most every `SAVE_SECONDS`, and when the server ends. A crash loses a few
  seconds of statistics.
"""

from typing import TypeAlias

from msgspec.structs import replace

from covey.core.record.actions import SaveHistory
from covey.core.record.histories import History
from covey.core.record.model import PilotRecord
from covey.core.state import Host, State
from covey.core.turn import Turn
from covey.core.values.durations import Times
from covey.pilot.protocol.messages import CANCELLED, LOST, OK, RETURNED, End

HALF_LIFE = 6 * 3600.0
PRIOR_ERRORS, PRIOR_LOSSES = 0.02, 0.05
PRIOR_WEIGHT = 5.0
SAVE_SECONDS = 30.0
MOVING = 0.1  # the weight of the latest turnaround in its mean
MEASURED = 3  # tasks of a class that must have ended before their speeds are compared
FASTEST = 100.0
MOST_SECONDS = 1e7  # of CPU that a pilot is believed for one task
DAY = 86400.0

Ended: TypeAlias = tuple[End, float, Times | None]
"""An end, when its attempt was sent, and the times of its class, to which it is added."""


def restore(state: State, histories: dict[str, History], now: float) -> None:
    for name, found in histories.items():
        state.hosts[name] = Host(name, found, saved=now)
        for whole in state.histories.above(found.site):
            _decay(whole, now)
            faded = _faded(found, now)
            whole.done += found.done * faded
            whole.failed += found.failed * faded
            whole.lost += found.lost * faded
            whole.turnaround = whole.turnaround or found.turnaround
            whole.last_done = max(whole.last_done, found.last_done)


def host_of(state: State, record: PilotRecord) -> Host:
    host = state.hosts.get(record.host)
    if host is None:
        host = state.hosts[record.host] = Host(record.host, History(site=record.site))
    return host


def note(turn: Turn, record: PilotRecord, ended: list[Ended]) -> None:
    """Count these attempts, which have ended on the pilot's host."""
    counted = [entry for entry in ended if entry[0].outcome not in (RETURNED, CANCELLED)]
    if not counted:
        return
    now = turn.now
    host = turn.state.hosts[record.host]
    found, fresh = host.history, host.fresh
    turn.state.histories.unsaved[record.host] = None
    found.site = record.site
    _decay(found, now)
    day = int(now // DAY)
    if found.day != day:
        found.day, found.done_today, found.failed_today = day, 0, 0
    well = [entry for entry in counted if entry[0].outcome == OK]
    if well:
        _note_successes(found, well, now)
        fresh.done += len(well)
    for end, _, _ in counted if len(well) < len(counted) else ():
        if end.outcome == OK:
            found.row = 0
        elif end.outcome == LOST:
            found.lost += 1.0
            fresh.lost += 1.0
        else:
            found.failed += 1.0
            found.failed_today += 1
            found.row, found.last_failed = found.row + 1, now
            fresh.failed += 1.0


def _note_successes(found: History, well: list[Ended], now: float) -> None:
    turnaround = found.turnaround if found.last_done else max(0.0, now - well[0][1])
    speed, cpu_seconds = found.speed, found.cpu_seconds
    for end, sent, times in well:
        turnaround += MOVING * ((now - sent if now > sent else 0.0) - turnaround)
        wall, cpu = end.wall_seconds, end.cpu_seconds
        if cpu > 0.0:
            cpu_seconds += cpu if cpu < MOST_SECONDS else MOST_SECONDS
        if times is not None:
            if times.count >= MEASURED:
                ratio = times.mean / (wall if wall > 1e-3 else 1e-3)
                speed += MOVING * ((ratio if ratio < FASTEST else FASTEST) - speed)
            times.add(wall)
    found.turnaround, found.speed, found.cpu_seconds = turnaround, speed, cpu_seconds
    found.done += len(well)
    found.done_today += len(well)
    found.row, found.last_done = 0, now


def note_late(turn: Turn, record: PilotRecord) -> None:
    """Count an attempt on this pilot's host that is not back by its deadline."""
    host = turn.state.hosts[record.host]
    turn.state.histories.unsaved[record.host] = None
    _decay(host.history, turn.now)
    host.history.lost += 1.0
    host.fresh.lost += 1.0


def sum_up(turn: Turn) -> None:
    """Add the fresh counts of hosts to the histories of their sites and of all sites, once a
    second."""
    state, now = turn.state, turn.now
    for name in state.histories.unsaved:
        host = state.hosts[name]
        fresh, found = host.fresh, host.history
        if not (fresh.done or fresh.failed or fresh.lost):
            continue
        for whole in state.histories.above(found.site):
            _decay(whole, now)
            whole.done += fresh.done
            whole.failed += fresh.failed
            whole.lost += fresh.lost
            if fresh.done:
                moved = whole.turnaround + MOVING * (found.turnaround - whole.turnaround)
                whole.turnaround = moved if whole.last_done else found.turnaround
                whole.last_done = now
        fresh.done = fresh.failed = fresh.lost = 0.0


def _faded(found: History, now: float) -> float:
    """The weight that the counts of this history still have."""
    return float(0.5 ** (max(0.0, now - found.at) / HALF_LIFE))


def _decay(found: History, now: float) -> None:
    if now - found.at > 1.0:
        faded = _faded(found, now) if found.at else 0.0
        found.done *= faded
        found.failed *= faded
        found.lost *= faded
        found.cpu_seconds *= faded
        found.at = now


def error_rate(state: State, found: History, now: float) -> float:
    """The part of the attempts that ended there which failed."""
    weight = PRIOR_WEIGHT / max(_faded(found, now), 1e-9)
    ended = found.done + found.failed
    prior = site_error_rate(state, found.site)
    return (found.failed + weight * prior) / (ended + weight)


def site_error_rate(state: State, site: str) -> float:
    return _rate_of_all(state.histories.by_site.get(site), queue_error_rate(state))


def queue_error_rate(state: State) -> float:
    return _rate_of_all(state.histories.overall, PRIOR_ERRORS)


def _rate_of_all(found: History | None, prior: float) -> float:
    if found is None:
        return prior
    return (found.failed + PRIOR_WEIGHT * prior) / (found.done + found.failed + PRIOR_WEIGHT)


def loss_rate(state: State, found: History) -> float:
    """The part of the attempts there that was lost with its pilot."""
    prior = PRIOR_LOSSES
    for whole in (state.histories.overall, state.histories.by_site.get(found.site), found):
        if whole is not None:
            all_ = whole.done + whole.failed + whole.lost
            prior = (whole.lost + PRIOR_WEIGHT * prior) / (all_ + PRIOR_WEIGHT)
    return prior


def turnaround(state: State, found: History) -> float:
    """In seconds; 0 if no task has succeeded anywhere."""
    for whole in (found, state.histories.by_site.get(found.site), state.histories.overall):
        if whole is not None and whole.last_done:
            return whole.turnaround
    return found.turnaround


def recent_cpu(found: History, now: float) -> float:
    return found.cpu_seconds * _faded(found, now)


def save(turn: Turn, *, at_once: bool = False) -> None:
    """Write the histories that have changed, unless they were written in the last
    `SAVE_SECONDS`."""
    sum_up(turn)
    state = turn.state
    for name in list(state.histories.unsaved):
        host = state.hosts[name]
        if at_once or turn.now - host.saved >= SAVE_SECONDS:
            host.saved = turn.now
            del state.histories.unsaved[name]
            turn.write(SaveHistory(name, replace(host.history, bans=dict(host.history.bans))))
