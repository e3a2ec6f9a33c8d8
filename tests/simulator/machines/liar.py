"""A pilot that lies: it runs nothing, and reports attempts that other pilots were sent.

It ends them, or says that it holds them, by their true ids or by older ones that never existed,
with forged receipts. The server must believe none of it.
"""

from collections.abc import Callable
from random import Random

from covey.core.protocol import receipts
from covey.core.record.attempts import Attempt
from covey.core.record.events import PilotEnrolled, SyncReceived
from covey.core.record.model import AttemptId, BagId, PilotId, RequestId, TaskNumber
from covey.lab.clock import Timeline
from covey.pilot.protocol.messages import FAILED, OK, Answer, End, Enrol, Enrolled, Held, Sync
from tests.simulator.checkers.ledger import HostLife, Ledger
from tests.simulator.machines.network import Call, Failure, Network, Outcome
from tests.simulator.machines.server import LIAR as NAME
from tests.simulator.machines.server import digest
from tests.simulator.plan.places import Place

KEY = "key of the liar"
PERIOD_SECONDS = 4.0
PATIENCE_SECONDS = 30.0
MOST_LIES = 3  # in a sync


class Liar:
    def __init__(
        self,
        clock: Timeline,
        network: Network,
        ledger: Ledger,
        random: Random,
        goes_on: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._network = network
        self._ledger = ledger
        self._random = random
        self._goes_on = goes_on
        self._life = ledger.hosts[NAME] = HostLife(NAME, Place(NAME), 1)
        self._pilot = PilotId(0)
        self._epoch = 0
        self._number = 0
        self._credential = ""
        self._credentials = 0
        clock.every(PERIOD_SECONDS, self._turn)

    def _turn(self) -> None:
        if not self._goes_on():
            return
        if not self._pilot:
            self._enrol()
        elif self._ledger.sendings:
            self._lie()

    def _enrol(self) -> None:
        def make(request: RequestId) -> PilotEnrolled:
            self._credentials += 1
            credential = f"{NAME}/{self._credentials}"
            return PilotEnrolled(request, Enrol(KEY, NAME, 1), credential, digest(credential))

        self._network.call(Call(NAME, "enrol", make, self._heard), PATIENCE_SECONDS)

    def _lie(self) -> None:
        """Lie in a full sync: an ordinary one only names attempts that the server knows anyway."""
        ends: list[End] = []
        held: list[Held] = []
        sendings = list(self._ledger.sendings.values())[-200:]
        for sending in self._random.choices(sendings, k=self._random.randint(1, MOST_LIES)):
            (epoch, sequence), (bag, task) = sending.key, sending.task
            if self._random.random() < 0.3:
                epoch, sequence = max(0, epoch - 1), self._random.randint(1, 500)
            if self._random.random() < 0.5:
                held.append(Held(epoch, sequence, bag, task))
            else:
                ends.append(End(epoch, sequence, bag, task, self._random.choice((OK, FAILED)), 0))
        forged = [*map(_forged, ends), *map(_forged, held)]
        self._number += 1
        sync = Sync(
            self._pilot, self._epoch, self._number, self._number - 1, 0, ends, held, None, forged
        )
        call = Call(
            NAME,
            "sync",
            lambda request: SyncReceived(request, sync),
            self._heard,
            self._pilot,
            self._credential,
        )
        self._network.call(call, PATIENCE_SECONDS)

    def _heard(self, outcome: Outcome) -> None:
        match outcome:
            case Enrolled(pilot, credential, epoch):
                self._pilot, self._credential, self._epoch = PilotId(pilot), credential, epoch
                self._ledger.lives[pilot] = self._life
            case Answer(epoch):
                self._epoch = max(self._epoch, epoch)
            case Failure("unauthorized"):
                self._pilot = PilotId(0)
            case _:
                pass


def _forged(row: End | Held) -> str:
    id_ = AttemptId(row.epoch, row.sequence)
    attempt = Attempt(id_, BagId(row.bag), TaskNumber(row.task), PilotId(1), 0.0)
    return receipts.write(b"not the key of the server", KEY, [attempt])
