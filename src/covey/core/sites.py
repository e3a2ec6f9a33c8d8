"""The sites that core knows: what may be started there, and which of them rest.

A site comes from the configuration, which says what it is, or was added while the server ran; then
it is in the record. Whether it is on, paused or draining is in the record for both. One that is
removed stays, draining, until nothing of ours is left there.

A site that fails rests: refused jobs, answers that cannot be had, and jobs that end before their
pilot did any good, each make the rest longer. Then one job probes it; the first end that one of its
pilots delivers makes all well.
"""

from msgspec.structs import replace

from covey.core.actions import DefineSites, Done, ForgetSite, Note, Problem, SaveSite
from covey.core.events import SiteRemoved, SiteSaved, SiteStatusRequested
from covey.core.model import JobId, SiteRecord, SiteSpec, SiteStatus
from covey.core.state import Replying, Site, State
from covey.core.turn import Turn

LOCAL, MANUAL = "local", "manual"  # drivers: this machine; people start the pilots
FIRST_REST, LONGEST_REST = 5.0, 3600.0
LOCAL_REST, LONGEST_LOCAL_REST = 0.25, 60.0  # here a try costs little


def local_site(pilots: int, slots: int) -> SiteSpec:
    """This machine: as many pilots as there may be, at once."""
    return SiteSpec(
        name=LOCAL,
        driver=LOCAL,
        slots=slots,
        wall_seconds=0.0,
        queued=pilots,
        running=pilots,
        ramp=pilots,
        pause_seconds=0.0,
    )


def restore(turn: Turn, records: tuple[SiteRecord, ...]) -> None:
    """Those of the configuration, as it is now, and those that were added."""
    state = turn.state
    kept = {one.spec.name: one for one in records}
    for spec in state.settings.sites:
        status = kept[spec.name].status if spec.name in kept else SiteStatus.ON
        _put(state, SiteRecord(spec=spec, status=status, of_file=True))
    for one in records:
        if not one.of_file and one.spec.name not in state.sites:
            _put(state, one)
    define(turn)


def _put(state: State, record: SiteRecord) -> None:
    known = state.sites.get(record.spec.name)
    if known is None:
        state.sites[record.spec.name] = Site(record, record.spec.ramp)
    else:
        known.record = record


def define(turn: Turn) -> None:
    specs = tuple(site.record.spec for site in turn.state.sites.values())
    turn.actions.append(DefineSites(specs))


# -- what people ask for --------------------------------------------------------------------


def save(turn: Turn, event: SiteSaved) -> None:
    known = turn.state.sites.get(event.spec.name)
    if known is not None and known.record.of_file:
        words = f"site {event.spec.name} stands in the server's covey.toml: change it there"
        turn.refuse(event.request, Problem.INVALID, words)
        return
    status = known.record.status if known is not None else SiteStatus.ON
    record = SiteRecord(spec=event.spec, status=status)
    _put(turn.state, record)
    site = turn.state.sites[event.spec.name]
    site.removed = False
    _well(site)
    turn.note(Note("site saved", detail=event.spec.name))
    turn.write(SaveSite(record), Replying(event.request, Done(1)))
    define(turn)


def set_status(turn: Turn, event: SiteStatusRequested) -> None:
    site = turn.state.sites.get(event.site)
    if site is None or site.removed:
        turn.refuse(event.request, Problem.NOT_FOUND, f"there is no site {event.site}")
        return
    site.record = replace(site.record, status=event.status)
    if event.status is SiteStatus.ON:
        _well(site)
    turn.note(Note(f"site {event.status}", detail=event.site))
    turn.write(SaveSite(site.record), Replying(event.request, Done(1)))


def remove(turn: Turn, event: SiteRemoved) -> None:
    site = turn.state.sites.get(event.site)
    if site is None or site.removed:
        turn.refuse(event.request, Problem.NOT_FOUND, f"there is no site {event.site}")
        return
    if site.record.of_file:
        words = f"site {event.site} stands in the server's covey.toml: take it out there"
        turn.refuse(event.request, Problem.INVALID, words)
        return
    site.removed = True
    site.record = replace(site.record, status=SiteStatus.DRAINING)
    turn.note(Note("site removed", detail=event.site))
    turn.write(ForgetSite(event.site), Replying(event.request, Done(1)))


def forget_removed(turn: Turn) -> None:
    """Those of which nothing is left."""
    state = turn.state
    for name, site in list(state.sites.items()):
        if site.removed and not site.jobs:
            del state.sites[name]
            define(turn)


# -- rest -----------------------------------------------------------------------------------


def failed(turn: Turn, site: Site, reason: str) -> None:
    """It rests, longer each time; on this machine not the first time."""
    site.failures += 1
    site.problem = reason
    site.ramp = max(1, site.ramp // 2)
    row = min(site.failures - 1, 20)
    if site.record.spec.driver == LOCAL:
        rest = min(LOCAL_REST * 2.0 ** (row + 1), LONGEST_LOCAL_REST) if row else 0.0
    else:
        rest = min(FIRST_REST * 2.0**row, LONGEST_REST)
    site.rests_until = max(site.rests_until, turn.now + rest)
    name = site.record.spec.name
    turn.note(Note("site rests", detail=f"{name}, for {rest:.0f} s: {reason}"))


def enrolled(state: State, id_: JobId) -> None:
    """The job's pilot has spoken, which is better news than any list's: more may wait there."""
    job = state.jobs.get(id_)
    site = state.sites.get(job.record.site) if job is not None else None
    if job is not None:
        job.running = True
    if site is not None and not site.failures:
        spec = site.record.spec
        site.ramp = min(max(1, site.ramp) * 2, max(spec.queued, spec.ramp))


def did_good(state: State, id_: JobId) -> None:
    """The job's pilot has delivered an end."""
    job = state.jobs.get(id_)
    if job is not None:
        job.useful = True
        site = state.sites.get(job.record.site)
        if site is not None and site.failures:
            _well(site)


def _well(site: Site) -> None:
    site.failures, site.rests_until, site.problem = 0, 0.0, ""
    site.ramp = site.record.spec.ramp


def trouble(site: Site, now: float) -> str:
    """Why nothing is started there now; nothing if something may be."""
    if site.record.status is not SiteStatus.ON:
        return f"it is {site.record.status}"
    if site.unanswered:
        return site.unanswered
    if now < site.rests_until:
        return f"it rests for {site.rests_until - now:.0f} s more: {site.problem}"
    return ""
