"""A site whose pilots people start, with a command that covey prints, on machines that covey cannot
reach. Nothing can be submitted there: a trial is refused with a hint, the list of jobs is empty.
Such a site gives its pilots a name, a setup and check, and its owners' preference.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from covey.core.record.model import SiteFacts, SiteSpec
from covey.sites.driver import OpenSite, Seen, SiteContext, Submission
from covey.sites.errors import Refused
from covey.sites.options import options_of
from covey.sites.queue_site import QueueSite


class ManualOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """It has no options."""


class Manual:
    name = "manual"
    options: type[Struct] = ManualOptions

    def facts(self, spec: SiteSpec) -> SiteFacts:
        options_of(spec, ManualOptions)
        return SiteFacts(by_hand=True, accounts=())

    def open(self, spec: SiteSpec, context: SiteContext) -> OpenSite:
        return QueueSite(spec, EmptyQueue, context).start()


class EmptyQueue:
    most_jobs = 1

    def __init__(self, spec: SiteSpec) -> None:
        self._site = spec.name

    def prepare(self, submission: Submission) -> Callable[[], Sequence[str]]:
        return self._refuse

    def _refuse(self) -> Sequence[str]:
        raise Refused(
            f"pilots of site {self._site} are started by people: "
            f"'covey pilot-command --site {self._site}' prints the command"
        )

    def listed(self, prefix: str) -> Sequence[Seen]:
        return ()

    def cancel(self, handles: Sequence[str]) -> None:
        pass

    def accounts(self, handles: Sequence[str]) -> None:
        return None

    def capacity(self) -> None:
        return None

    def close(self) -> None:
        pass
