"""The administrator: adds sites while the server runs, changes, pauses, drains and removes them,
and turns all of them on again when the world becomes calm."""

from collections.abc import Callable
from functools import partial
from random import Random

from covey.core.record.actions import Done
from covey.core.record.events import Event, SiteRemoved, SiteSaved, SiteStatusRequested
from covey.core.record.model import RequestId, SiteStatus
from covey.lab.clock import START, Timeline
from tests.simulator.checkers.site_checks import Supervisor
from tests.simulator.machines.network import Call, Network, Outcome
from tests.simulator.plan.site_plans import Deed, Grounds

TIMEOUT_SECONDS = 15.0


class Administrator:
    """Does one deed after another, and never asks for two at once."""

    def __init__(
        self,
        grounds: Grounds,
        clock: Timeline,
        network: Network,
        supervisor: Supervisor,
        random: Random,
    ) -> None:
        self.asking = 0  # deeds that are not done yet
        self._clock = clock
        self._network = network
        self._supervisor = supervisor
        self._random = random
        self._queue: list[Deed] = []
        self._busy = False
        for spec in grounds.added:
            clock.at(START + 0.1, partial(self._want, Deed(0.1, spec.name, spec=spec)))
        for deed in grounds.deeds:
            clock.at(START + deed.at, partial(self._want, deed))
        self._grounds = grounds

    def set_right(self) -> None:
        """It is calm: make all as it was planned, whatever late messages have done."""
        if self.asking:
            return
        records = self._supervisor.records
        for spec in self._grounds.added:
            record = records.get(spec.name)
            if record is None or record.removed or record.spec != spec:
                self._want(Deed(0.0, spec.name, spec=spec))
        for name, record in records.items():
            if record.status is not SiteStatus.ON and not record.removed:
                self._want(Deed(0.0, name, status=SiteStatus.ON))

    def _want(self, deed: Deed) -> None:
        self.asking += 1
        self._queue.append(deed)
        self._next()

    def _next(self) -> None:
        if self._queue and not self._busy:
            self._busy = True
            self._do(self._queue.pop(0))

    def _do(self, deed: Deed) -> None:
        opens = deed.spec is not None or deed.status is SiteStatus.ON
        if opens:
            self._supervisor.asks_to_open(deed.site)

        def heard(outcome: Outcome) -> None:
            match outcome:
                case Done():
                    if not opens:
                        self._supervisor.told_shut(deed.site, self._clock.time)
                    self._done()
                case _ if hasattr(outcome, "problem"):
                    self._done()  # it was done already, or there is no such site
                case _:
                    self._clock.after(self._random.uniform(0.2, 3.0), lambda: self._do(deed))

        call = Call("administrator", "ask", self._event(deed), heard)
        self._network.call(call, TIMEOUT_SECONDS)

    def _done(self) -> None:
        self.asking -= 1
        self._busy = False
        self._next()

    def _event(self, deed: Deed) -> Callable[[RequestId], Event]:
        spec, status = deed.spec, deed.status
        if spec is not None:
            return lambda request: SiteSaved(request, spec)
        if status is not None:
            return lambda request: SiteStatusRequested(request, deed.site, status)
        return lambda request: SiteRemoved(request, deed.site)
