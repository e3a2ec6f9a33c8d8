"""Questions about bags that core holds. The answer None means that core does not hold the bag: it
has ended, or never existed. Then the record is asked."""

from msgspec import Struct

from covey.core.explain.steps import Steps
from covey.core.record.input_files import digests_in
from covey.core.record.model import BagId, BagSpec, PolicySpec
from covey.core.state import State
from covey.questions.bag_views import bag_view, running_rows
from covey.questions.question import LongQuestion, Question
from covey.wire import BagView, RunningRow, in_list


class LastBag(Question[BagId], frozen=True):
    """The number of the latest bag; 0: no bag was submitted yet."""

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
    """How far a bag is. Clients that follow the bag wait for a change of it."""

    bag: BagId
    owner: str
    open: bool
    done: int
    failed: int
    waits: bool  # some of its tasks were not sent yet
    recorded: int  # the last write with an end of this bag; 0: no task has ended
    heard: float  # when its program last waited for its calls; infinite: it need not wait
    epoch: int  # of the server
    durable: int  # the last durable write of this epoch


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
    """Whether this task of the bag may still print something; task -1: any task."""

    bag: BagId
    task: int

    def answer(self, state: State, now: float) -> bool:
        bag, task = state.bags.get(self.bag), self.task
        if bag is None or task < 0:
            return bag is not None
        return task < bag.total and task not in bag.places.done and task not in bag.places.failed


class ViewOfBag(Question[BagView | None], frozen=True):
    """The bag as its owner sees it, without what only the record knows about results."""

    bag: BagId

    def answer(self, state: State, now: float) -> BagView | None:
        bag = state.bags.get(self.bag)
        return bag_view(state, bag, now) if bag is not None else None


class ViewsOfBags(LongQuestion[dict[BagId, BagView]], frozen=True):
    """Those of these bags that core holds, as a list shows them."""

    bags: tuple[BagId, ...]

    def steps(self, state: State, now: float) -> Steps[dict[BagId, BagView]]:
        views = {}
        for id_ in self.bags:
            bag = state.bags.get(id_)
            if bag is not None:
                views[id_] = in_list(bag_view(state, bag, now))
                yield
        return views


class RunningTasks(LongQuestion[list[RunningRow]], frozen=True):
    """The bag's attempts that pilots have, at most `limit`."""

    bag: BagId
    limit: int

    def steps(self, state: State, now: float) -> Steps[list[RunningRow]]:
        bag = state.bags.get(self.bag)
        if bag is None:
            return []
        return (yield from running_rows(state, bag, self.limit))


class BagFiles(Struct, frozen=True):
    """Digests of a bag's input files, with those of earlier versions, which some attempts use."""

    versions: int  # how often the input files were changed
    digests: frozenset[str]


class FilesOfBag(Question[BagFiles | None], frozen=True):
    """The bag's files; None if it still has this number of `versions`, whose files the caller has
    already."""

    bag: BagId
    versions: int = -1

    def answer(self, state: State, now: float) -> BagFiles | None:
        bag = state.bags.get(self.bag)
        if bag is None:
            return BagFiles(-1, frozenset())
        if len(bag.inputs.versions) == self.versions:
            return None
        return BagFiles(len(bag.inputs.versions), bag.inputs.earlier.union(digests_in(bag.spec)))
