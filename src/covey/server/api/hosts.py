"""Pilots and hosts in the API: the active ones from the decider, earlier ones from the record. Only
admins see pilots of another owner, or of a site that the caller may not use."""

from msgspec.structs import replace
from starlette.requests import Request

from covey.core.protocol.report_check import shown_tags
from covey.core.record.actions import ReplyMessage
from covey.core.record.events import PilotDismissed
from covey.core.record.model import PilotId
from covey.questions.pilot_questions import (
    HostNow,
    HostsNow,
    OwnerOfPilot,
    ViewsOfPilots,
    serves,
)
from covey.questions.site_questions import HiddenSites
from covey.server.web import auth
from covey.server.web.auth import ACT, SEE
from covey.server.web.requests import ServerAccess, caller_of, number
from covey.server.web.route import act, look
from covey.wire import HostView, PilotView


class HostCalls:
    def __init__(self, access: ServerAccess) -> None:
        self._access = access

    @look("/pilots", "all pilots", SEE)
    async def pilots(self, request: Request) -> list[PilotView]:
        """Pilots that are active, or may be; with `all=1` also the latest that have ended."""
        decider, viewer = self._access.decider, caller_of(request).viewer
        recorded: list[PilotView] = []
        if request.query_params.get("all", "0") == "1" or not decider.ready:
            recorded = await self._access.read(lambda reader: reader.pilots())
        if viewer is not None:
            hidden = self._hidden(viewer)
            recorded = [
                replace(view, tags=shown_tags(view.tags, viewer))
                for view in recorded
                if serves(view.owner, viewer) and view.site not in hidden
            ]
        if not decider.ready:
            return recorded
        here = await decider.ask_long(ViewsOfPilots(viewer))
        ids = {view.id for view in here}
        gone = [view for view in recorded if view.status == "left" and view.id not in ids]
        return sorted(here + gone, key=lambda view: -view.id)

    @act("/pilots/{pilot}/dismiss", "shut a pilot down", ACT, refuses=(404,))
    async def dismiss(self, request: Request) -> ReplyMessage:
        id_ = PilotId(number(request, "pilot", 0))
        owner = self._access.decider.ask_if_ready(OwnerOfPilot(id_))
        if owner is not None:
            auth.admit_to(caller_of(request), owner, f"pilot {id_}")
        return await self._access.ask(lambda request: PilotDismissed(request, id_))

    @look("/hosts", "the hosts that pilots ran on", SEE)
    async def hosts(self, request: Request) -> list[HostView]:
        decider, viewer = self._access.decider, caller_of(request).viewer
        hosts, owners = await self._access.read(
            lambda reader: (reader.hosts(), reader.host_owners())
        )
        if decider.ready:
            now = await decider.ask_long(HostsNow(viewer))
            hosts = [_with(host, now.get(host.host)) for host in hosts]
        if viewer is None:
            return hosts
        hidden = self._hidden(viewer)
        usable = ((host, owners.get(host.host, set())) for host in hosts if host.site not in hidden)
        return [
            _seen_by(viewer, host, whose)
            for host, whose in usable
            if any(serves(owner, viewer) for owner in whose)
        ]

    def _hidden(self, viewer: str) -> frozenset[str]:
        return self._access.decider.ask_if_ready(HiddenSites(viewer)) or frozenset()


def _with(host: HostView, now: HostNow | None) -> HostView:
    """The host, with what its pilots do now, and with core's history of it."""
    if now is None:
        return host
    host.error_rate, host.banned = now.error_rate, now.banned
    if now.pilots:
        host.tags, host.shortage = now.tags, now.shortage
        host.pilots, host.slots, host.running, host.sent = (
            now.pilots,
            now.slots,
            now.running,
            now.sent,
        )
        host.heard = max(host.heard, now.heard)
    return host


def _seen_by(viewer: str, host: HostView, whose: set[str]) -> HostView:
    """The host as this viewer may see it: of bans and tags, only the viewer's own and nobody's."""
    tags = host.tags if host.pilots or all(serves(owner, viewer) for owner in whose) else {}
    bans = {owner: ban for owner, ban in host.banned.items() if serves(owner, viewer)}
    return replace(host, tags=shown_tags(tags, viewer), banned=bans)
