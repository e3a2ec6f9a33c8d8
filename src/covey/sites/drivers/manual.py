"""A site where people start the pilots: with a line that covey gives them, on machines that covey
does not reach. Nothing can be submitted there, so a trial is refused with what to do instead; the
list of its jobs is empty. The site is there for its name, its setup and check, and its owners'
preference.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from covey.core.record.model import SiteSpec
from covey.sites.driver import Batch, Command, Output, Refused, Seen

NOTHING = Command(("true",))


class ManualOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """None."""


class Manual:
    name = "manual"
    options = ManualOptions
    most_elements = 1
    index = "0"
    environment: Mapping[str, str] = {}

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        return NOTHING

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        raise Refused(
            f"pilots of site {spec.name} are started by people: "
            f"'covey pilot-command --site {spec.name}' prints the command"
        )

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        return NOTHING

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        return []

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        return NOTHING

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        return None

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        return []
