"""The classes of a bag's tasks. Decisions are made per class and not per task."""

from bisect import insort
from collections.abc import Sequence

from msgspec import Struct, field

from covey.core.record.model import Need
from covey.core.record.task_classes import Classify
from covey.core.values.durations import Times
from covey.core.values.space import Scalar


class TaskClass(Struct, eq=False):
    """Tasks of a bag that need the same resources and that its policy treats alike."""

    need: Need
    number: int  # of its need; pilots know needs by these numbers
    sample: list[Scalar] | None = None  # the values of one of its tasks
    times: Times = field(default_factory=Times)
    by_site: dict[str, Times] = field(default_factory=dict)


class TaskClasses(list[TaskClass]):
    """A list of classes, oldest first. Classes never leave it: attempts that are out with pilots
    have their class's place in this list."""

    __slots__ = ("_long_first", "by_number", "classify", "crowded", "numbers", "pace", "turns")

    def __init__(self, *, long_first: bool = False) -> None:
        super().__init__()
        self._long_first = long_first  # tasks with a longer time limit go out first
        self.classify: Classify | None = None  # None: all tasks are of one class
        self.by_number: list[int] = []  # by number of a need: its first class
        self.numbers: dict[Need, int] = {}
        self.turns: list[
            tuple[float, int]
        ] = []  # (minus seconds, class), in the order of going out
        self.crowded = False  # the bag has as many classes as it may, and would need more
        self.pace = Times()  # parts of their time limits that tasks took

    def add_need(self, need: Need) -> None:
        """Tasks may have this need, too: give it the next number, and a class."""
        number = len(self.by_number)
        self.numbers.setdefault(need, number)
        self.by_number.append(len(self))
        self._add(TaskClass(need, number))

    def split(self, number: int, sample: Sequence[Scalar]) -> int:
        """Add another class with the need of that number. `sample`: the values of one of its
        tasks."""
        self._add(TaskClass(self[self.by_number[number]].need, number, list(sample)))
        return len(self) - 1

    def _add(self, new: TaskClass) -> None:
        seconds = new.need.limit_seconds if self._long_first else 0.0
        insort(self.turns, (-seconds, len(self)))
        self.append(new)

    @property
    def long_first(self) -> bool:
        """Whether some tasks go out before others because they have more time."""
        return self.turns[0][0] != self.turns[-1][0]

    def check(self) -> None:
        assert self.turns == sorted(self.turns)
        assert sorted(kind for _, kind in self.turns) == list(range(len(self)))
        for number, kind in enumerate(self.by_number):
            assert self[kind].number == number, "a need's class has another need"
        for class_ in self:
            assert class_.need == self[self.by_number[class_.number]].need
        for need, number in self.numbers.items():
            assert self[self.by_number[number]].need == need, "a need has another's number"
