"""The tasks of a bag. Nothing of a task is kept here: each question is asked when it is put."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, overload

from covey.client.client import Client
from covey.core.errors import CoveyError, NotFound
from covey.frontend import task_list
from covey.python.results import Result, Results
from covey.wire import ResultRow

if TYPE_CHECKING:
    from covey.python.bag import Bag

OUT, ERR = 1, 2


class Logs(NamedTuple):
    """What a task printed; `outcome` is `running` while it still may print more."""

    stdout: str
    stderr: str
    outcome: str

    def __str__(self) -> str:
        return self.stdout + self.stderr


class Task:
    """One task, by its number in its bag."""

    def __init__(self, bag: "Bag", number: int) -> None:
        self.bag = bag
        self.number = number

    def __repr__(self) -> str:
        return f"<covey.Task {self.number} of bag {self.bag.id} {self.bag.name!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Task):
            return NotImplemented
        return (self.bag, self.number) == (other.bag, other.number)

    def __hash__(self) -> int:
        return hash((self.bag, self.number))

    def state(self) -> str:
        """waiting, sent (it waits at a pilot for a free slot), running, done, failed; or `not run`
        in a bag that was cancelled."""
        result = self.result()
        if result is not None:
            return "done" if result.ok else "failed"
        source = self.bag.connection.reader()
        view = self.bag.view()
        if isinstance(source, Client) and not view.over:
            running = source.running(view.id, task_list.MOST_RUNNING)
            states = {row.state for row in running if row.task == self.number}
            if states:
                return "running" if "running" in states else "sent"
        return "not run" if view.over else "waiting"

    def result(self) -> Result | None:
        """How it ended; None until then."""
        counted = [row for row in self.attempts() if row.counted]
        return Results(self.bag.known, counted)[-1] if counted else None

    def value(self, trust: str = "data") -> Any:
        """What a function returned, if the bag is one of calls (of an Executor, of `@covey.task`);
        what it raised is raised. For calls that were sent in chunks, a list of values. Raises
        NotFound if it has not ended.

        Plain data comes back: numbers, text, bytes, dates, and lists, tuples, dictionaries and
        sets of these. For other objects say `trust="objects"`. Unpickling them can run code here,
        so do that only if you would run programs of the bag's owner and of every host that ran
        its tasks."""
        if not self.bag.known.calls:
            raise CoveyError(
                f"bag {self.bag.id} runs programs, not functions: the results of its tasks are "
                f"in task.result(), task.logs() and bag.pull()"
            )
        result = self.result()
        if result is None:
            raise self._not_there("has not ended yet")
        from covey.executor import answers  # with cloudpickle

        return answers.value(result.row, self.bag.id, self.bag.connection.client, trust)

    def attempts(self) -> list[ResultRow]:
        """Every ended attempt, oldest first."""
        return self.bag.connection.reader().attempts(self.bag.id, self.number)

    def logs(self) -> Logs:
        """What it printed, or has printed so far. Raises NotFound if it has not begun."""
        source = self.bag.connection.reader()
        view = self.bag.view()
        output = source.output(view.id, self.number)
        if output is not None:
            return Logs(output.stdout, output.stderr, output.outcome)
        if isinstance(source, Client) and not view.over:
            pieces = source.live_output(view.id, self.number).pieces
            streams = {
                stream: "".join(piece.text for piece in pieces if piece.stream == stream)
                for stream in (OUT, ERR)
            }
            if pieces or self.state() == "running":
                return Logs(streams[OUT], streams[ERR], "running")
        raise self._not_there("has not begun yet")

    def _not_there(self, yet: str) -> NotFound:
        words = "never ran" if self.bag.view().over else f"{yet}; bag.wait() waits for it"
        return NotFound(f"task {self.number} of bag {self.bag.id} {words}")


class Tasks:
    """All tasks of a bag: `bag.tasks[17]`, `bag.tasks[:5]`, `len(bag.tasks)`,
    `bag.tasks.where("failed")`."""

    def __init__(self, bag: "Bag") -> None:
        self._bag = bag

    def __len__(self) -> int:
        return self._bag.view().total

    @overload
    def __getitem__(self, number: SupportsIndex) -> Task: ...

    @overload
    def __getitem__(self, number: slice) -> list[Task]: ...

    def __getitem__(self, number: SupportsIndex | slice) -> Task | list[Task]:
        """Raises IndexError beyond the last one."""
        numbers = range(len(self))
        if isinstance(number, slice):
            return [Task(self._bag, one) for one in numbers[number]]
        try:
            return Task(self._bag, numbers[number])
        except IndexError:
            last = len(numbers) - 1
            raise IndexError(f"bag {self._bag.id} has tasks 0 to {last:,}; not {number}") from None

    def __iter__(self) -> Iterator[Task]:
        return (Task(self._bag, number) for number in range(len(self)))

    def where(self, state: str) -> list[Task]:
        """Those that are waiting, sent, running, done or failed."""
        if state not in task_list.STATES:
            raise ValueError(f"a task is {', '.join(task_list.STATES)}; not {state!r}")
        found = task_list.select(self._bag.connection.reader(), self._bag.view(), state)
        return [Task(self._bag, line.task) for line in found]

    def __repr__(self) -> str:
        return f"<{len(self):,} tasks of bag {self._bag.id}>"
