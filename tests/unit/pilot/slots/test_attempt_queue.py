"""Attempts pass through, each to exactly one end."""

from random import Random
from signal import SIGINT, SIGTERM
from typing import Any

import pytest

from covey.pilot.files.readiness import Unable
from covey.pilot.files.uploads import Sent
from covey.pilot.protocol.commands import Prepare, Start
from covey.pilot.protocol.messages import Answer, Body, End, Input, Need, OutputFile, Task
from covey.pilot.protocol.pilot_state import PilotState
from covey.pilot.slots.attempt_queue import (
    DOUBT_SECONDS,
    PLAN_SECONDS,
    SWEEP_SECONDS,
    AttemptQueue,
    PilotParts,
)
from covey.pilot.slots.capacity import Capacity
from covey.pilot.slots.orders import Link, Order, Outcome, Plan, Returned

BODY = Body(1, ["run"], [])


class Slots:
    def __init__(self) -> None:
        self.plans: dict[int, Plan] = {}
        self.inside: dict[str, Order] = {}
        self.outcomes: list[Outcome] = []
        self.cancelled: list[str] = []
        self.short = ""

    def shortage(self) -> str:
        return self.short

    def free(self) -> int:
        return 8 - len(self.inside)

    def plan(self, plan: Plan) -> None:
        assert plan.number not in self.plans
        self.plans[plan.number] = plan

    def forget(self, number: int) -> None:
        del self.plans[number]

    def offer(self, order: Order) -> bool:
        assert order.plan in self.plans
        self.inside[order.key] = order
        return True

    def cancel(self, key: str) -> None:
        self.cancelled.append(key)

    def read(self) -> list[Outcome]:
        outcomes, self.outcomes = self.outcomes, []
        for outcome in outcomes:
            del self.inside[outcome.key]
        return outcomes


class Readiness:
    def __init__(self) -> None:
        self.ready: list[str] = []
        self.unable: list[Unable] = []
        self.to_run: list[Body] = []
        self.forgotten: list[str] = []

    def prepare(self, start: Start, now: float) -> None:
        self.ready.append(start.key)

    def links(self, body: Body, inputs: list[Input]) -> list[Link]:
        return [Link("/cache/" + item.digest, item.path) for item in inputs]

    def turn(self, now: float) -> None: ...

    def wake_at(self, now: float) -> float:
        return now + 5.0

    def sweep(self, held: object) -> None: ...

    def forget(self, key: str, bag: int) -> None:
        self.forgotten.append(key)


class Setups:
    def tree(self, body: Body) -> str:
        return "/setup" if body.setup else ""

    def sweep(self) -> None: ...


class Outbox:
    def __init__(self) -> None:
        self.pending: list[str] = []
        self.done: list[Sent] = []

    def put(self, key: str, files: list[Returned]) -> list[OutputFile] | None:
        self.pending.append(key)
        return None

    def sent(self) -> list[Sent]:
        done, self.done = self.done, []
        return done

    def close(self) -> list[str]:
        return self.pending


class Said:
    def __init__(self) -> None:
        self.said_: list[tuple[str, str]] = []

    def wrote(self, owner: str, text: str) -> None:
        self.said_.append((owner, text))


class Desk:
    def __init__(self, **room: Any) -> None:
        self.brain = PilotState(7, 1, 2, 60.0, Random(1), 0.0)
        self.slots, self.readiness, self.outbox = Slots(), Readiness(), Outbox()
        self.tags = Said()
        parts: Any = (
            self.slots, Capacity(2, **room), self.readiness, Setups(), self.outbox, None, self.tags,
            {"PATH": "/bin"}, print,
        )  # fmt: skip
        self.work = AttemptQueue(PilotParts(*parts))
        self.now = 0.0
        self.sequence = 0
        self.number = 0

    def give(self, *tasks: Task, body: Body = BODY) -> None:
        self.brain.step(self.now)
        self.number += 1
        self.brain.answered(self.number, Answer(1, self.number, [body], list(tasks)), self.now)
        for command in self.brain.step(self.now):
            if isinstance(command, Prepare):
                self.work.prepare(self.brain, command.start, self.now)
        self.work.fill(self.brain, self.now)

    def end(self, key: str, kind: str = "ok", **more: Any) -> None:
        fields = {"exit_code": 0, "wall_seconds": 0.5, "started": 1.0, **more}
        self.slots.outcomes.append(Outcome(key, kind, **fields))
        self.turn()

    def turn(self, later: float = 0.0) -> None:
        self.now += later
        self.work.turn(self.brain, self.now)

    def ends(self) -> list[End]:
        return [one.end for one in self.brain._ends] + [
            end for opened in self.brain._open.values() for end in opened.sync.ends
        ]


def test_a_plan_is_told_once_a_bag_and_forgotten_after_it() -> None:
    desk = Desk()
    desk.give(Task(1, 1, 0, []))
    again = Body(*BODY)  # as another epoch would send it
    desk.give(Task(2, 1, 1, []), body=again)
    assert list(desk.slots.plans) == [1]
    changed = BODY._replace(argv=["walk"])
    desk.give(Task(3, 1, 2, []), body=changed)
    assert list(desk.slots.plans) == [1, 2]
    assert [order.plan for order in desk.slots.inside.values()] == [1, 1, 2]
    desk.turn(SWEEP_SECONDS)
    for key in ("1.1", "1.2", "1.3"):
        desk.end(key)
    desk.turn(PLAN_SECONDS / 2)
    assert list(desk.slots.plans) == [1, 2]
    desk.turn(PLAN_SECONDS)
    assert list(desk.slots.plans) == []
    desk.give(Task(4, 1, 3, []), body=changed)
    assert list(desk.slots.plans) == [3]


def test_what_never_fits_ends_with_words_and_others_go_on() -> None:
    desk = Desk(memory_mb=100)
    body = BODY._replace(needs=[Need(), Need(1, 200)])
    desk.give(Task(1, 1, 0, [], 1), Task(2, 1, 1, []), body=body)
    assert list(desk.slots.inside) == ["1.2"]
    (end,) = desk.ends()
    assert (end.sequence, end.outcome) == (1, "host")
    assert "needs 200 MB of memory" in end.message


def test_a_large_task_waits_and_is_not_passed() -> None:
    desk = Desk()
    body = BODY._replace(needs=[Need(), Need(2)])
    desk.give(Task(1, 1, 0, []), Task(2, 1, 1, [], 1), Task(3, 1, 2, []), body=body)
    assert list(desk.slots.inside) == ["1.1"]
    desk.end("1.1")
    assert list(desk.slots.inside) == ["1.2"]
    desk.end("1.2")
    assert list(desk.slots.inside) == ["1.3"]


def test_an_attempts_own_files_are_linked_and_let_go() -> None:
    desk = Desk()
    desk.give(Task(1, 1, 0, [], inputs=[Input("x", "ab", 1)]))
    desk.turn()
    assert desk.slots.inside["1.1"].links == [Link("/cache/ab", "x")]
    desk.end("1.1")
    assert desk.readiness.forgotten == ["1.1"]


def test_what_cannot_be_prepared_ends() -> None:
    desk = Desk()
    desk.give(Task(1, 1, 0, []), Task(2, 1, 1, []), body=BODY._replace(setup="make"))
    desk.end("1.1")
    desk.readiness.unable = [Unable("1.2", "setup", "no"), Unable("1.1", "setup", "too late")]
    del desk.slots.inside["1.2"]
    desk.turn()
    assert [(end.sequence, end.outcome) for end in desk.ends()] == [(1, "ok"), (2, "setup")]


LARGE = Returned("big", 5, False, b"", "/place/big")


def test_it_has_not_ended_before_its_files_are_sent() -> None:
    desk = Desk()
    desk.give(Task(1, 1, 0, []), body=BODY._replace(owner="ana"))
    desk.end("1.1", files=[LARGE], tags="a=b\n", result='{"x":1}')
    assert desk.tags.said_ == [("ana", "a=b\n")]
    assert desk.ends() == []
    assert desk.work.uploading()
    assert not desk.work.busy()
    assert "1.1" in desk.brain.holding
    desk.outbox.done = [Sent("1.1", [OutputFile("big", 5, "ab")], "")]
    desk.turn(2.0)
    (end,) = desk.ends()
    assert (end.outcome, end.result, end.files) == ("ok", '{"x":1}', [OutputFile("big", 5, "ab")])
    assert not desk.brain.holding


def test_files_that_are_refused_are_an_output_failure() -> None:
    desk = Desk()
    desk.give(Task(1, 1, 0, []))
    desk.end("1.1", files=[LARGE])
    desk.outbox.done = [Sent("1.1", [], "big: too large")]
    desk.turn()
    (end,) = desk.ends()
    assert (end.outcome, end.message, end.files) == ("output", "big: too large", [])


def test_stopping_ends_what_runs_and_what_is_being_sent() -> None:
    desk = Desk()
    desk.give(Task(1, 1, 0, []), Task(2, 1, 1, []))
    desk.end("1.1", files=[LARGE])
    desk.work.stop(desk.brain, "asked to end", desk.now)
    assert desk.slots.cancelled == ["1.1", "1.2"]
    desk.outbox.done = [Sent("1.1", [], "")]  # too late
    desk.end("1.2", "cancelled")
    ends = {end.sequence: (end.outcome, end.message) for end in desk.ends()}
    assert ends == {1: ("host", "not all of its files reached the server: asked to end")}
    assert not desk.brain.holding, "the other is lost with the pilot"


def test_what_a_signal_to_all_has_ended_is_lost_with_the_pilot() -> None:
    """The pilot may hear it first, or the task."""
    desk = Desk()
    desk.give(Task(1, 1, 0, []), Task(2, 1, 1, []))
    desk.end("1.1", "failed", signal=SIGTERM)
    assert "1.1" in desk.brain.holding
    desk.work.leaving = True
    desk.end("1.2", "failed", message="exit code 1")
    assert desk.ends() == []
    assert not desk.brain.holding
    assert not desk.work.busy()


@pytest.mark.parametrize("how", [{"signal": SIGTERM}, {"signal": SIGINT}, {"exit_code": 143}])
def test_who_ends_by_such_a_signal_while_the_pilot_stays_has_failed(how: dict[str, int]) -> None:
    desk = Desk()
    desk.give(Task(1, 1, 0, []))
    desk.end("1.1", "failed", **how)
    assert desk.ends() == []
    assert desk.work.wake_at(desk.now) == desk.now + DOUBT_SECONDS
    desk.turn(DOUBT_SECONDS)
    assert [end.outcome for end in desk.ends()] == ["failed"]


def test_what_ends_well_or_too_late_counts_although_the_pilot_is_asked_to_end() -> None:
    desk = Desk()
    desk.give(Task(1, 1, 0, []), Task(2, 1, 1, []))
    desk.work.leaving = True
    desk.end("1.1")
    desk.end("1.2", "timeout", signal=SIGTERM)
    assert [end.outcome for end in desk.ends()] == ["ok", "timeout"]


def test_nothing_is_kept_for_bags_that_are_over() -> None:
    desk = Desk()
    for bag in range(1, 400):
        body = BODY._replace(bag=bag)
        desk.give(Task(bag, bag, 0, [0]), body=body)
        desk.end(f"1.{bag}")
        desk.turn(2 * PLAN_SECONDS)
    work: Any = desk.work
    kept = {name: len(value) for name, value in vars(work).items() if hasattr(value, "__len__")}
    assert {name: count for name, count in kept.items() if count > 3 and name != "_parts"} == {}
    assert len(desk.slots.plans) <= 3


def test_no_task_starts_on_a_full_disk_and_all_go_back() -> None:
    desk = Desk()
    desk.slots.short = "no space left"
    desk.turn()
    desk.give(Task(1, 1, 0, [0]))
    desk.turn()
    assert not desk.slots.inside
    assert not desk.brain.holding
    desk.slots.short = ""
    desk.turn()
    desk.give(Task(2, 1, 1, [1]))
    assert list(desk.slots.inside) == ["1.2"]
