"""Questions about bags that core holds. None as an answer: core does not hold the bag. It is over,
or never was; the record knows."""

from msgspec import Struct

from covey.core.explain.steps import Steps
from covey.core.record.input_files import digests_in
from covey.core.record.model import BagId, BagSpec, PolicySpec
from covey.core.state import State
from covey.questions.bag_views import bag_view, running_rows
from covey.questions.question import LongQuestion, Question
from covey.wire import BagView, RunningRow, in_list


class LastBag(Question[BagId], frozen=True):
    """The number of the latest bag; 0: there was none yet."""

    def answer(self, state: State, now: float) -> BagId:
        return BagId(state.counters.next_bag - 1)


class OwnerOfBag(Question[str | None], frozen=True):
    bag: BagId

    def answer(self, state: State, now: float) -> str | None:
        bag = state.bags.get(self.bag)
        return bag.spec.owner if bag is not None else None


class SpecOfBag(Question[BagSpec | None], frozen=True):
    bag: BagId

    def answer(self, state: State, now: float) -> BagSpec | None:
        bag = state.bags.get(self.bag)
        return bag.spec if bag is not None else None


class PolicyOfBag(Question[PolicySpec | None], frozen=True):
    bag: BagId

    def answer(self, state: State, now: float) -> PolicySpec | None:
        bag = state.bags.get(self.bag)
        if bag is None:
            return None
        return bag.quarantine.held or bag.policy.spec  # held: the bag is quarantined


class Progress(Struct, frozen=True):
    """How far a bag is: what those who follow it wait for."""

    bag: BagId
    owner: str
    open: bool
    done: int
    failed: int
    waits: bool  # some of its tasks are still to be sent
    recorded: int  # its ends are in writes up to this one; 0: none has ended
    heard: float  # when somebody waited for its calls; infinite: nobody has to
    epoch: int  # of the server
    durable: int  # writes of this epoch


class ProgressOfBag(Question[Progress | None], frozen=True):
    bag: BagId

    def answer(self, state: State, now: float) -> Progress | None:
        bag = state.bags.get(self.bag)
        if bag is None:
            return None
        return Progress(
            bag.id,
            bag.spec.owner,
            bag.open,
            len(bag.places.done),
            len(bag.places.failed),
            bag.unsent() > 0,
            bag.progress.recorded,
            bag.progress.heard,
            state.epoch,
            state.journal.durable,
        )


class MayPrint(Question[bool], frozen=True):
    """Whether this task of the bag may still print something; task -1: any of them."""

    bag: BagId
    task: int

    def answer(self, state: State, now: float) -> bool:
        bag, task = state.bags.get(self.bag), self.task
        if bag is None or task < 0:
            return bag is not None
        return task < bag.total and task not in bag.places.done and task not in bag.places.failed


class ViewOfBag(Question[BagView | None], frozen=True):
    """The bag as its owner sees it, but for what only the record knows of its results."""

    bag: BagId

    def answer(self, state: State, now: float) -> BagView | None:
        bag = state.bags.get(self.bag)
        return bag_view(state, bag, now) if bag is not None else None


class ViewsOfBags(LongQuestion[dict[BagId, BagView]], frozen=True):
    """The same of those of these bags that core holds, as a list shows them."""

    bags: tuple[BagId, ...]

    def steps(self, state: State, now: float) -> Steps[dict[BagId, BagView]]:
        found = {}
        for id_ in self.bags:
            bag = state.bags.get(id_)
            if bag is not None:
                found[id_] = in_list(bag_view(state, bag, now))
                yield
        return found


class RunningTasks(LongQuestion[list[RunningRow]], frozen=True):
    """Its attempts that are out with pilots, so many at most."""

    bag: BagId
    limit: int

    def steps(self, state: State, now: float) -> Steps[list[RunningRow]]:
        bag = state.bags.get(self.bag)
        if bag is None:
            return []
        return (yield from running_rows(state, bag, self.limit))


class BagFiles(Struct, frozen=True):
    """Digests of the input files of a bag: some attempts may have been sent with earlier ones."""

    versions: int  # of its inputs, after the first
    digests: frozenset[str]


class FilesOfBag(Question[BagFiles | None], frozen=True):
    """None if the bag has just so many versions of its inputs: whoever asks has seen them."""

    bag: BagId
    versions: int = -1

    def answer(self, state: State, now: float) -> BagFiles | None:
        bag = state.bags.get(self.bag)
        if bag is None:
            return BagFiles(-1, frozenset())
        if len(bag.inputs.versions) == self.versions:
            return None
        return BagFiles(len(bag.inputs.versions), bag.inputs.earlier.union(digests_in(bag.spec)))
