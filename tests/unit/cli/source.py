"""A server of known answers, for the commands that ask one."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from click.testing import Result

from covey.client.client import Client
from covey.core.explain import catalogue
from covey.core.explain.answers import Listed, PolicyReport, ShownPolicy
from covey.core.record.model import PolicySpec
from covey.pilot.protocol.messages import Piece
from covey.wire import (
    BagView,
    Explanation,
    FailureGroup,
    HostView,
    InputsView,
    LiveOutput,
    Output,
    PilotView,
    ResultQuery,
    ResultRow,
    ReturnedFile,
)
from tests.unit.cli.builders import bag, row

Look = Callable[..., Result]  # the words of a command; the exit status it must have


NO_INPUTS = InputsView(
    version=1,
    versions=[],
    host="",
    seal="",
    sources=[],
    inputs=[],
    task_inputs=[],
    manifest={},
)


class FakeSource(Client):
    """Bag 3 has ten tasks: 0 to 5 have ended, 2 and 4 of them badly. What it is told to do is
    noted in `told`, the questions about results in `asked`."""

    def __init__(self) -> None:
        self.rows = [
            row(0, output="1.5"),
            row(1, output='say "hi", you'),
            row(2, outcome="failed", exit_code=1, stderr_bytes=26, cause="exit 1: ValueError: bad"),
            row(3),
            row(4, outcome="failed", exit_code=-1, signal=9, cause="SIGKILL"),
            row(5),
        ]
        self.view = bag(name="fits", done=4, failed=2)
        self.stdout = "out\n"
        self.stderr = "Traceback\nValueError: bad\n"
        self.there: list[PilotView] = []
        self.known: list[HostView] = []
        self.returned: list[ReturnedFile] = []
        self.groups = [group(), group(cause="SIGKILL", example=4, tasks=[4], log="")]
        self.live: list[list[Piece]] = []
        self.later: list[Any] = []  # one is called whenever live output is asked for
        self.asked: list[ResultQuery] = []
        self.told: list[tuple[Any, ...]] = []
        self.decides = PolicySpec()
        self.report = PolicyReport(faults=[], notes=[], hosts=2, meeting=1)
        self.listed: list[Listed] = []
        self.explanation: Explanation | None = None
        self.named_inputs = InputsView(
            version=1,
            versions=[],
            host="",
            seal="",
            sources=[],
            inputs=[],
            task_inputs=[],
            manifest={},
        )
        self.sent: dict[str, bytes] = {}  # files, by their digests

    def bags(self) -> list[BagView]:
        return [self.view]

    def bag(self, bag: Any, *, wait_seconds: float = 0.0, seen: int = -1) -> BagView | None:
        return self.view if bag in (self.view.id, "latest") else None

    def results(self, bag: Any, query: ResultQuery, wait_seconds: float = 0.0) -> list[ResultRow]:
        self.asked.append(query)
        place = {one.task: one.row if query.by_row else one.task for one in self.rows}
        chosen = [
            one
            for one in self.rows
            if (query.sort or place[one.task] > query.after)
            and not (query.failed_only and one.outcome == "ok")
        ]
        if query.sort.startswith("-"):
            chosen.reverse()
        return chosen[query.offset :][: query.limit]

    def export(self, bag: Any, query: ResultQuery, form: str) -> Iterator[bytes]:
        self.asked.append(query)
        yield f"{form} of {bag}\n".encode()
        yield b"in parts\n"

    def failures(self, bag: Any, limit: int = 100) -> list[FailureGroup]:
        return self.groups[:limit]

    def files(self, bag: Any, after: int = -1, limit: int = 1000) -> list[ReturnedFile]:
        return [one for one in self.returned if one.row > after][:limit]

    def hosts(self) -> list[HostView]:
        return self.known

    def running(self, bag: Any, limit: int = 1000) -> list[Any]:
        return []

    def unfinished(self, bag: Any, after: int = -1, limit: int = 1000) -> list[int]:
        ended = {one.task for one in self.rows}
        left = [n for n in range(max(0, after + 1), self.view.total) if n not in ended]
        return left[:limit]

    def attempts(self, bag: Any, task: int) -> list[ResultRow]:
        return [one for one in self.rows if one.task == task]

    def output(self, bag: Any, task: int) -> Output | None:
        for one in self.attempts(bag, task):
            err = self.stderr if one.stderr_bytes else ""
            return Output(
                task=task, attempt=one.attempt, outcome=one.outcome, stdout=self.stdout, stderr=err
            )
        return None

    def pilots(self, limit: int = 1000, *, everyone: bool = False) -> list[PilotView]:
        return self.there

    def live_output(
        self, bag: Any, task: int = -1, after: int = 0, wait_seconds: float = 0.0
    ) -> LiveOutput:
        if self.later:
            self.later.pop(0)()
        pieces = self.live.pop(0) if self.live else []
        return LiveOutput(next=after + len(pieces), pieces=pieces)

    def policy(self, bag: Any) -> ShownPolicy:
        return catalogue.view(self.decides, bag)

    def set_policy(self, bag: Any, policy: PolicySpec) -> int:
        self.told.append(("set policy", bag, policy))
        self.decides = policy
        return 1

    def check_policy(self, policy: PolicySpec | None, bag: Any = None) -> PolicyReport:
        self.told.append(("check policy", policy, bag))
        return self.report

    def attributes(self) -> list[Listed]:
        return self.listed

    def explain(self, bag: Any, task: int = -1) -> Explanation:
        self.told.append(("explain", bag, task))
        assert self.explanation is not None
        return self.explanation

    def cancel(self, bag: Any) -> int:
        self.told.append(("cancel", bag))
        return 4

    def pause(self, bag: Any, reason: str = "") -> int:
        self.told.append(("pause", bag, reason))
        return 4

    def resume(self, bag: Any) -> int:
        self.told.append(("resume", bag))
        return 4

    def retry(
        self,
        bag: Any,
        *,
        causes: Any = (),
        tasks: Any = None,
        memory: float = 1.0,
        time: float = 1.0,
        **more: Any,
    ) -> int:
        given = [(name, value) for name, value in more.items() if value]
        self.told.append(("retry", bag, tuple(causes), tasks, memory, time, *given))
        return 0 if "nothing" in causes else 2

    def inputs(self, bag: Any) -> InputsView:
        return self.named_inputs

    def missing(self, digests: Any) -> list[str]:
        return [digest for digest in digests if digest not in self.sent]

    def purge(self, bag: Any, what: str) -> int:
        self.told.append(("purge", bag, what))
        return 1


def group(**facts: Any) -> FailureGroup:
    known: dict[str, Any] = {
        "cause": "exit 1: ValueError: bad", "outcome": "failed", "count": 1, "hosts": ["node1"],
        "host_count": 1, "tasks": [2], "example": 2, "log": "Traceback\nValueError: bad\n",
    }  # fmt: skip
    return FailureGroup(**{**known, **facts})


def piece(task: int, start: int, text: str, stream: int = 1) -> Piece:
    return Piece(3, task, 1, task, stream, start, text)


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]
