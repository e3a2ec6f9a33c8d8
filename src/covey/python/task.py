"""The tasks of a bag. A task keeps only its number: every method asks the server, or the record."""

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
    """What a task printed. `outcome` is `running` while the task may print more."""

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
        """waiting, sent (waiting at a pilot for a free slot), running, done or failed; `not run` if
        the bag was cancelled before."""
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
        """The result of the task; None until it has ended."""
        counted = [row for row in self.attempts() if row.counted]
        return Results(self.bag.known, counted)[-1] if counted else None

    def value(self, trust: str = "data") -> Any:
        """The value that a function returned, if the tasks of the bag are calls (of an Executor or
        of `@covey.task`). If the function raised an error, it is raised here. Calls that were sent
        in chunks have a list of values. Raises NotFound if the task has not ended.

        By default, only plain data is accepted: numbers, text, bytes, dates, and lists, tuples,
        dictionaries and sets of these. For other objects use `trust="objects"`. Unpickling them can
        run code here, so do that only if you would run programs of the bag's owner and of every
        host that ran its tasks."""
        if not self.bag.known.calls:
            raise CoveyError(
                f"bag {self.bag.id} runs programs, not functions: the results of its tasks are "
                "in task.result(), task.logs() and bag.pull()"
            )
        result = self.result()
        if result is None:
            raise self._not_there("has not ended yet")
        from covey.executor import answers  # imports cloudpickle

        return answers.value(result.row, self.bag.id, self.bag.connection.client, trust)

    def attempts(self) -> list[ResultRow]:
        """Every ended attempt, oldest first."""
        return self.bag.connection.reader().attempts(self.bag.id, self.number)

    def logs(self) -> Logs:
        """What the task printed so far. Raises NotFound if it has not begun."""
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
        """Raises IndexError if there is no such task."""
        numbers = range(len(self))
        if isinstance(number, slice):
            return [Task(self._bag, index) for index in numbers[number]]
        try:
            return Task(self._bag, numbers[number])
        except IndexError:
            last = len(numbers) - 1
            raise IndexError(f"bag {self._bag.id} has tasks 0 to {last:,}; not {number}") from None

    def __iter__(self) -> Iterator[Task]:
        return (Task(self._bag, number) for number in range(len(self)))

    def where(self, state: str) -> list[Task]:
        """The tasks in this state: waiting, sent, running, done or failed."""
        if state not in task_list.STATES:
            raise ValueError(f"a task is {', '.join(task_list.STATES)}; not {state!r}")
        lines = task_list.select(self._bag.connection.reader(), self._bag.view(), state)
        return [Task(self._bag, line.task) for line in lines]

    def __repr__(self) -> str:
        return f"<{len(self):,} tasks of bag {self._bag.id}>"
