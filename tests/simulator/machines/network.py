"""The virtual network: every request and every answer is a message with its own fate.

A message may be lost, come late, come twice (the copy perhaps much later, to another server
process), or overtake others. A connection may break under a waiting request. A caller that gets no
answer gives up after its timeout; the server may notice that, or not.
"""

from collections.abc import Callable
from random import Random
from typing import Protocol

from msgspec import Struct

from covey.core.record.actions import Refuse, ReplyMessage
from covey.core.record.events import Event
from covey.core.record.model import PilotId, RequestId
from covey.lab.clock import Timeline
from covey.pilot.protocol.messages import Answer
from tests.simulator.trace import Trace


class Failure(Struct, frozen=True):
    """No answer: a timeout, a refusal, a broken connection; or the server says to come later."""

    reason: str
    delay: float = 0.0


Outcome = ReplyMessage | Refuse | Failure


class Call(Struct, eq=False):
    """One request, and the function that gets its outcome."""

    sender: str
    what: str
    make: Callable[[RequestId], Event]
    heard: Callable[[Outcome], None]
    pilot: PilotId | None = None  # for a sync or a leave
    credential: str = ""
    open: bool = True


class Weather(Struct):
    """How bad the network is: probabilities for each message."""

    loss: float = 0.0
    double: float = 0.0
    slow: float = 0.0
    reset: float = 0.0


CALM = Weather()


class Front(Protocol):
    """What the network sees of a server process."""

    def receive(self, call: Call) -> None: ...

    def hung_up(self, call: Call) -> None: ...


class Network:
    def __init__(self, clock: Timeline, trace: Trace, random: Random) -> None:
        self.weather = Weather()
        self.server: Front | None = None  # where calls arrive; None while the server is down
        self.faults: dict[str, int] = {}
        self._clock = clock
        self._trace = trace
        self._random = random
        self._cut: dict[str, float] = {}

    def call(self, call: Call, timeout: float) -> None:
        weather, random = self.weather, self._random
        self._clock.after(timeout, lambda: self._give_up(call))
        if random.random() < weather.double:
            self._count("duplicated")
            late = random.random() < 0.3
            delay = random.uniform(2.0, 60.0) if late else random.uniform(0.0, 2.0)
            self._clock.after(delay, lambda: self._arrive(call))
        if random.random() < weather.loss:
            self._lose(call, "request")
            return
        self._clock.after(self._delay(), lambda: self._arrive(call))
        if random.random() < weather.reset:
            self._clock.after(random.uniform(0.0, 5.0), lambda: self._reset(call))

    def respond(self, call: Call, outcome: Outcome) -> None:
        if self._random.random() < self.weather.loss:
            self._lose(call, "answer")
            return
        self._clock.after(self._delay(), lambda: self._deliver(call, outcome))

    def cut(self, sender: str, until: float) -> None:
        """Nothing gets through from or to this sender for a while."""
        self._cut[sender] = max(until, self._cut.get(sender, 0.0))

    def heal(self) -> None:
        self._cut.clear()
        self.weather = CALM

    def is_cut(self, sender: str) -> bool:
        return self._cut.get(sender, 0.0) > self._clock.time

    def server_died(self, waiting: list[Call]) -> None:
        """Most connections to a dead process break; some callers notice only by their timeout."""
        for call in waiting:
            if self._random.random() < 0.8:
                self._fail(call, "the connection broke", self._delay())

    # -- a message's way -------------------------------------------------------------------

    def _delay(self) -> float:
        random = self._random
        if random.random() < self.weather.slow:
            self._count("delayed")
            return random.uniform(0.2, 8.0)
        return random.uniform(0.0005, 0.02)

    def _arrive(self, call: Call) -> None:
        if self.is_cut(call.sender):
            self._lose(call, "request")
        elif self.server is None:
            self._fail(call, "nobody listens", self._delay())
        else:
            self.server.receive(call)

    def _deliver(self, call: Call, outcome: Outcome) -> None:
        if not call.open:
            return
        if self.is_cut(call.sender):
            self._lose(call, "answer")
            return
        call.open = False
        self._trace.add(f"{call.sender} < {describe(outcome)}")
        call.heard(outcome)

    def _lose(self, call: Call, what: str) -> None:
        self._count(f"lost {what}")
        if self._random.random() < 0.4:
            self._fail(call, "the connection broke", self._delay())

    def _fail(self, call: Call, reason: str, delay: float) -> None:
        self._clock.after(delay, lambda: self._deliver_failure(call, reason))

    def _deliver_failure(self, call: Call, reason: str) -> None:
        if call.open:
            call.open = False
            self._trace.add(f"{call.sender} < {call.what}: {reason}")
            call.heard(Failure(reason))

    def _reset(self, call: Call) -> None:
        if call.open:
            self._count("broken connection")
            self._deliver_failure(call, "the connection broke")
            self._tell_server(call)

    def _give_up(self, call: Call) -> None:
        if call.open:
            self._deliver_failure(call, "timed out")
            self._tell_server(call)

    def _tell_server(self, call: Call) -> None:
        if self._random.random() < 0.7 and not self.is_cut(call.sender):
            self._clock.after(self._delay(), lambda: self._hung_up(call))

    def _hung_up(self, call: Call) -> None:
        if self.server is not None:
            self.server.hung_up(call)

    def _count(self, what: str) -> None:
        self.faults[what] = self.faults.get(what, 0) + 1


def describe(outcome: Outcome) -> str:
    match outcome:
        case Answer(epoch, number, _, tasks, cancels, recalls, resync, recorded, leave):
            words = [f"answer {number} e{epoch}"]
            words += [f"resync {recorded}"] if resync else []
            words += ["+" + ",".join(f"{t.sequence}={t.bag}/{t.task}" for t in tasks)]
            words += [f"cancels {len(cancels)}"] if cancels else []
            words += [f"recalls {len(recalls)}"] if recalls else []
            words += ["leave"] if leave else []
            return " ".join(words)
        case Refuse(_, problem, detail):
            return f"refused {problem}: {detail}"
        case _:
            return str(outcome)
