"""Bugs of the overlay to plant: of issue 8, where covey places its pilots itself."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from covey.core.after_commit import Starting, Then
from covey.core.match import dispatch, ranking
from covey.core.match.site_access import SiteBar
from covey.core.protocol import recovery
from covey.core.record.actions import Change, ForgetSite, SaveJob, SubmitPilots
from covey.core.record.events import SiteRemoved
from covey.core.record.model import JobId, JobOutcome, JobRecord, SiteStatus, Snapshot
from covey.core.sites import allowed_sites, demand, job_history, overlay, site_table
from covey.core.sites.demand import DemandRow
from covey.core.state import Bag, Job, Pilot, Site, State
from covey.core.turn import Turn
from tests.simulation.bugs import BUGS, WORDS, bug, planted


@bug((site_table, "room"), words="where queued is")
def lets_more_wait_than_may(right: Callable[..., int], state: State, now: float, site: Site) -> int:
    found = right(state, now, site)
    return found + 3 if found else 0


@bug((site_table, "room"), words="where running is")
def counts_only_those_that_wait(
    right: Callable[..., int], state: State, now: float, site: Site
) -> int:
    record = site.record
    site.record = replace(record, spec=replace(record.spec, running=0))
    try:
        return right(state, now, site)
    finally:
        site.record = record


@bug((site_table, "room"), words="where all_memory_mb is")
def spends_more_memory_than_there_is(
    right: Callable[..., int], state: State, now: float, site: Site
) -> int:
    record = site.record
    site.record = replace(record, spec=replace(record.spec, all_memory_mb=0))
    try:
        return right(state, now, site)
    finally:
        site.record = record


@bug((site_table, "room_of"), words="where per_user is")
def gives_all_to_one_owner(right: Callable[..., int], *_: object) -> int:
    return 1000


@bug((site_table, "trouble"), words="which is shut")
def starts_jobs_at_sites_that_are_shut(right: Callable[..., str], site: Site, now: float) -> str:
    record = site.record
    site.record = replace(record, status=SiteStatus.ON)
    try:
        return right(site, now)
    finally:
        site.record = record


@bug((site_table, "failed"), words="is broken, and got")
def goes_on_with_a_broken_site(right: Callable[..., None], *_: object) -> None:
    pass


@bug((site_table, "left"), words="is unfit, and got")
def goes_on_where_the_check_fails(right: Callable[..., None], *_: object) -> None:
    pass


@bug((Turn, "write"), words="is not durable")
def submits_before_it_is_durable(
    right: Callable[..., int], turn: Turn, change: Change, then: Then | None = None
) -> int:
    if isinstance(change, SaveJob) and isinstance(then, Starting):
        jobs = tuple(turn.state.jobs[id_].record for id_ in then.jobs)
        turn.actions.append(SubmitPilots(jobs))
        then = None
    return right(turn, change, then)


@bug((recovery, "rebuild"), words="was submitted twice")
def submits_again_after_a_restart(
    right: Callable[..., Turn], snapshot: Snapshot, *more: object
) -> Turn:
    turn = right(snapshot, *more)
    for job in snapshot.jobs:
        turn.actions.append(SubmitPilots((job,)))
    return turn


@bug((recovery, "_restore_jobs"), words="")
def forgets_jobs_at_a_restart(right: Callable[..., None], *_: object) -> None:
    pass


@bug((overlay, "_end_vanished"), words="")
def believes_that_every_silence_is_an_end(
    right: Callable[..., None], turn: Turn, id_: JobId, job: Job
) -> None:
    overlay.ended(turn, id_, job.vanished)


@bug((overlay, "_take_back"), words="nobody wants anything, but")
def takes_nothing_back(right: Callable[..., None], *_: object) -> None:
    pass


def _takes_all_back_at_once() -> Any:
    return planted(lambda: patch.object(overlay, "MOST_CANCELS", 10**6))


WORDS["takes_all_back_at_once"] = "jobs were taken back at once"
BUGS["takes_all_back_at_once"] = _takes_all_back_at_once()


@bug((demand, "rows"), words="for nobody")
def keeps_asking_for_bags_that_are_over(
    right: Callable[..., list[DemandRow]], state: State, now: float
) -> list[DemandRow]:
    found = right(state, now)
    kept: list[DemandRow] = getattr(state, "kept_rows", [])
    state.kept_rows = found or kept  # type: ignore[attr-defined]
    return found or kept


@bug((demand, "cover"), words="slots wait there for")
def counts_on_nobody(right: Callable[..., None], found: list[DemandRow], *_: object) -> None:
    for row in found:
        row.missing = row.tasks


@bug((allowed_sites, "bar_for_tasks"), words="who is no user there")
def places_pilots_for_anybody(right: Callable[..., SiteBar | None], *_: object, **__: bool) -> None:
    pass


@bug((allowed_sites, "suits"), words="has no bag")
def places_pilots_whatever_policies_say(
    right: Callable[..., dict[str, bool]], state: State, now: float, bag: Bag
) -> dict[str, bool]:
    return dict.fromkeys(state.sites, True)


@bug((site_table, "owner_of"), words="and its pilot is there for")
def lends_pilots_to_anybody(right: Callable[..., str], *_: object) -> str:
    return ""


@bug((ranking, "admits"), words="for whom")
def lets_anybody_in(right: Callable[..., bool], *_: object) -> bool:
    return True


@bug((dispatch, "weight_on"), words="and its pilot ends at")
def forgets_that_pilots_end(
    right: Callable[..., int], bag: Bag, kind: int, pilot: Pilot, now: float
) -> int:
    return right(bag, kind, pilot, -1e9)


@bug((site_table, "remove"), words="is forgotten, with jobs")
def forgets_a_removed_site_at_once(
    right: Callable[..., None], turn: Turn, event: SiteRemoved
) -> None:
    right(turn, event)
    if turn.state.sites.pop(event.site, None) is not None:
        turn.write(ForgetSite(event.site))


@bug((job_history, "_outcome"), words="does not tell how job")
def forgets_how_jobs_ended(right: Callable[..., JobOutcome], *_: object) -> JobOutcome:
    return JobOutcome.UNKNOWN


@bug((job_history, "_save"), words="are not in order")
def lets_jobs_start_before_they_wait(
    right: Callable[..., None], turn: Turn, job: Job, record: JobRecord
) -> None:
    started = record.submitted - 5.0 if record.started else 0.0
    right(turn, job, replace(record, started=started))
