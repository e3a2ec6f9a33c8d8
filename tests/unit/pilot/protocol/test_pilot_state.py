"""What the pilot's brain promises, one promise a test."""

from random import Random
from typing import TypeVar

from covey.pilot.protocol.commands import Command, Depart, EnrolAgain, Prepare, Recall, Send, Stop
from covey.pilot.protocol.messages import (
    Answer,
    Body,
    End,
    Followed,
    Held,
    Input,
    Need,
    OutputFile,
    Sync,
    Task,
)
from covey.pilot.protocol.pilot_state import (
    LAST_BACKOFF,
    LONG_SECONDS,
    LONGEST_DELAY,
    MOST_ENDS,
    MOST_OUTPUT,
    PACE_SECONDS,
    PilotState,
    key_of,
)

Kind = TypeVar("Kind")

BODY = Body(1, ["work", "{i}"], ["i"])


class Desk:
    """A brain with a clock."""

    def __init__(self, slots: int = 2) -> None:
        self.now = 100.0
        self.brain = PilotState(7, 1, slots, 20.0, Random(1), self.now)

    def step(self, later: float = 0.0) -> list[Command]:
        self.now += later
        return self.brain.step(self.now)

    def sent(self, later: float = 0.0) -> list[Sync]:
        return [command.sync for command in of_kind(self.step(later), Send)]

    def work(self, number: int, *sequences: int, epoch: int = 1) -> None:
        """The server answers with tasks; these sequences, numbered alike."""
        tasks = [Task(sequence, 1, sequence, [sequence]) for sequence in sequences]
        self.brain.answered(number, Answer(epoch, number, [BODY], tasks), self.now)

    def start_all(self) -> list[str]:
        keys = []
        start = self.brain.next_start()
        while start is not None:
            keys.append(start.key)
            start = self.brain.next_start()
        return keys

    def end(self, key: str, wall: float = 0.001, outcome: str = "ok") -> None:
        holding = self.brain.holding[key]
        task = holding.task
        end = End(holding.epoch, task.sequence, task.bag, task.task, outcome, wall_seconds=wall)
        self.brain.ended(key, end, self.now)


def of_kind(commands: list[Command], kind: type[Kind]) -> list[Kind]:
    return [command for command in commands if isinstance(command, kind)]


def test_it_asks_at_once_and_then_waits() -> None:
    desk = Desk()
    (sync,) = desk.sent()
    assert (sync.number, sync.want, sync.ends, sync.held) == (1, 2, [], None)
    assert desk.sent(5.0) == []


def test_one_sync_is_always_parked_even_when_slots_are_full() -> None:
    desk = Desk()
    desk.sent()
    desk.work(1, 1, 2)
    (parked,) = desk.sent()
    assert parked.number == 2
    assert desk.start_all() == ["1.1", "1.2"]


def test_an_end_goes_out_at_once_when_nothing_is_queued() -> None:
    desk = Desk()
    desk.sent()
    desk.work(1, 1, 2)
    desk.sent()
    desk.start_all()
    desk.end("1.1")
    (sync,) = desk.sent()
    assert [end.sequence for end in sync.ends] == [1]
    assert sync.received == 1


def test_ends_are_paced_while_work_is_queued() -> None:
    desk = Desk(slots=1)
    desk.sent()
    desk.work(1, 1, 2, 3, 4)
    desk.sent()
    assert desk.brain.next_start() is not None
    desk.end("1.1")
    assert desk.sent() != []
    assert desk.brain.next_start() is not None
    desk.brain.answered(2, Answer(1, 2), desk.now)
    desk.brain.answered(3, Answer(1, 3), desk.now)
    desk.sent()
    desk.end("1.2")
    assert desk.sent() == []
    (sync,) = desk.sent(PACE_SECONDS * 1.01)
    assert [end.sequence for end in sync.ends] == [2]


def test_ends_do_not_wait_until_the_work_is_gone() -> None:
    desk = Desk(slots=1)
    desk.sent()
    desk.work(1, *range(11))
    desk.sent()
    first, *keys = desk.start_all()
    desk.end(first)
    desk.sent()
    desk.brain.answered(2, Answer(1, 2), desk.now)
    desk.brain.answered(3, Answer(1, 3), desk.now)
    desk.sent()
    for key in keys[:5]:
        desk.end(key)
    assert desk.sent() == [], "as much is left as has ended"
    desk.end(keys[5])
    (sync,) = desk.sent()
    assert len(sync.ends) == 6


def test_a_sync_that_has_overtaken_another_goes_again_at_once() -> None:
    desk = Desk(slots=1)
    desk.sent()
    desk.work(1, 1)
    desk.sent()
    desk.start_all()
    desk.end("1.1")
    (sync,) = desk.sent()
    assert desk.brain._number == sync.number == 3
    desk.brain.refused(3, 1, "out-of-order", desk.now)
    assert desk.sent() == []
    assert desk.sent(0.002) == [sync]
    desk.brain.refused(3, 2, "out-of-order", desk.now)
    assert desk.sent(0.002) == [], "the next time a little later"
    assert desk.sent(0.004) == [sync]
    assert not desk.brain.away()


def test_short_tasks_are_prefetched_and_long_ones_are_not() -> None:
    desk = Desk()
    desk.sent()
    desk.work(1, 1, 2)
    desk.sent()
    desk.start_all()
    desk.end("1.1", wall=0.001)
    assert desk.sent()[0].want > 50
    for _ in range(40):
        desk.brain.answered(desk.brain._number, Answer(1, desk.brain._number), desk.now)
    slow = Desk()
    slow.sent()
    slow.work(1, 1, 2)
    slow.sent()
    slow.start_all()
    slow.end("1.1", wall=30.0)
    assert slow.sent()[0].want == 2


def a_hoard(desk: Desk) -> None:
    """Short tasks were measured, more were asked for, and these are long."""
    desk.sent()
    desk.work(1, 1)
    desk.sent()
    desk.start_all()
    desk.end("1.1")
    assert desk.sent()[0].want > 50
    desk.brain.answered(3, Answer(1, 3), desk.now)
    desk.work(2, *range(2, 10))
    for _ in range(4):  # two that run, and two in the slots' pipes
        assert desk.brain.next_start() is not None
    desk.sent()


def test_long_tasks_that_came_as_short_ones_are_given_back() -> None:
    desk = Desk()
    a_hoard(desk)
    assert of_kind(desk.step(LONG_SECONDS), Recall) == []
    commands = desk.step(0.01)
    assert of_kind(commands, Recall) == [Recall(["1.2", "1.3", "1.4", "1.5"])]
    (sync,) = [command.sync for command in of_kind(commands, Send)]
    assert sync.want == 2
    assert [(end.sequence, end.outcome) for end in sync.ends] == [
        (number, "returned") for number in (6, 7, 8, 9)
    ]
    for key in ("1.4", "1.5"):
        desk.end(key, 0.0, "returned")
    desk.step()
    assert of_kind(desk.step(5.0), Recall) == [], "nothing is left to share"


def test_a_hoard_is_kept_while_the_server_is_away() -> None:
    desk = Desk()
    a_hoard(desk)
    desk.brain.failed(4, 1, desk.now)
    assert of_kind(desk.step(5.0), Recall) == []
    assert len(desk.brain.queue) == 4


def test_what_a_policy_sends_ahead_is_kept() -> None:
    desk = Desk()
    desk.sent()
    desk.work(1, *range(1, 9))  # it had asked for two
    desk.sent()
    desk.start_all()
    assert of_kind(desk.step(5.0), Recall) == []
    assert len(desk.brain.holding) == 8


def test_answers_are_processed_in_order() -> None:
    desk = Desk(slots=4)
    desk.sent()
    desk.work(1, 1)
    desk.sent()
    desk.start_all()
    desk.end("1.1")
    desk.sent()
    desk.work(3, 3)
    assert list(desk.brain.holding) == []
    desk.work(2, 2)
    assert list(desk.brain.holding) == ["1.2", "1.3"]


def test_an_overtaken_sync_is_asked_for_again() -> None:
    desk = Desk(slots=4)
    desk.sent()
    desk.work(1, 1)
    desk.sent()
    desk.start_all()
    desk.end("1.1")
    desk.sent()
    desk.work(3, 3)
    assert [sync.number for sync in desk.sent(1.0)] == [2]


def test_the_same_number_and_ends_are_sent_again_with_growing_pauses() -> None:
    desk = Desk()
    desk.sent()
    desk.work(1, 1)
    desk.sent()
    desk.start_all()
    desk.end("1.1")
    (sync,) = desk.sent()
    pauses = []
    for attempt in range(1, 14):
        desk.brain.failed(sync.number, attempt, desk.now)
        before = desk.now
        while not (again := [s for s in desk.sent(0.05) if s.number == sync.number]):
            pass
        assert again == [sync]
        pauses.append(desk.now - before)
    assert pauses[0] < 0.2
    assert LAST_BACKOFF / 2 <= pauses[-1] <= LAST_BACKOFF + 0.1


def test_a_new_epoch_makes_it_say_what_it_holds_and_resend_what_is_not_recorded() -> None:
    desk = Desk(slots=3)
    desk.sent()
    desk.work(1, 1, 2, 3)
    desk.sent()
    desk.start_all()
    desk.end("1.1")
    (first,) = desk.sent()
    desk.end("1.2")
    desk.brain.answered(first.number, Answer(2, first.number, resync=True, recorded=0), desk.now)
    (full,) = desk.sent()
    assert full.epoch == 2
    assert full.number > first.number
    assert [end.sequence for end in full.ends] == [1, 2]
    assert full.held == [Held(1, 3, 1, 3)]


def test_it_shows_receipts_of_all_it_holds_or_has_ended_and_only_when_it_says_everything() -> None:
    desk = Desk(slots=3)
    desk.sent()
    for number, receipt in ((1, "first"), (2, "second"), (3, "third")):
        task = Task(number, 1, number, [number])
        desk.brain.answered(number, Answer(1, number, [BODY], [task], receipt=receipt), desk.now)
        (sync,) = desk.sent()
        assert sync.receipts == []
    desk.start_all()
    desk.end("1.1")
    (first,) = desk.sent()
    assert (len(first.ends), first.receipts) == (1, [])
    desk.end("1.2")
    answer = Answer(2, first.number, resync=True, recorded=first.number)
    desk.brain.answered(first.number, answer, desk.now)
    (full,) = desk.sent()
    assert [end.sequence for end in full.ends] == [2]
    assert full.receipts == ["third", "second"]


def test_ends_that_the_server_has_recorded_are_not_sent_again() -> None:
    desk = Desk()
    desk.sent()
    desk.work(1, 1)
    desk.sent()
    desk.start_all()
    desk.end("1.1")
    (sync,) = desk.sent()
    resync = Answer(2, sync.number, resync=True, recorded=sync.number)
    desk.brain.answered(sync.number, resync, desk.now)
    assert desk.sent()[0].ends == []


def test_an_answer_of_an_older_epoch_is_ignored() -> None:
    desk = Desk()
    desk.sent()
    desk.brain.answered(1, Answer(2, 1, resync=True), desk.now)
    (full,) = desk.sent()
    desk.work(full.number, 9, epoch=1)
    assert not desk.brain.holding


def test_cancel_and_recall() -> None:
    desk = Desk(slots=2)
    desk.sent()
    desk.work(1, 1, 2, 3, 4)
    assert desk.brain.next_start() is not None
    assert desk.brain.next_start() is not None
    desk.sent()
    held = [Held(1, sequence, 1, sequence) for sequence in (1, 2, 3, 4)]
    answer = Answer(1, 2, cancels=[held[0], held[2]], recalls=[held[1], held[3]])
    desk.brain.answered(2, answer, desk.now)
    commands = desk.step()
    assert of_kind(commands, Stop) == [Stop("1.1")]
    assert of_kind(commands, Recall) == [Recall(["1.2"])]
    (sync,) = [command.sync for command in of_kind(commands, Send)]
    assert [(end.sequence, end.outcome) for end in sync.ends] == [(3, "returned"), (4, "returned")]


def test_draining_gives_back_finishes_delivers_and_departs() -> None:
    desk = Desk(slots=1)
    desk.sent()
    desk.work(1, 1, 2)
    desk.sent()
    assert desk.brain.next_start() is not None
    desk.brain.drain("asked to end", desk.now)
    commands = desk.step()
    assert of_kind(commands, Recall) == [Recall(["1.1"])]
    (sync,) = [command.sync for command in of_kind(commands, Send)]
    assert (sync.want, sync.ends[0].outcome) == (0, "returned")
    desk.brain.answered(2, Answer(1, 2), desk.now)
    desk.brain.answered(sync.number, Answer(1, sync.number), desk.now)
    desk.step()
    desk.end("1.1")
    (last,) = desk.sent()
    desk.brain.answered(4, Answer(1, 4), desk.now)
    assert of_kind(desk.step(), Depart) == []
    desk.brain.answered(last.number, Answer(1, last.number), desk.now)
    assert of_kind(desk.step(), Depart) == [Depart("asked to end")]


def test_an_idle_pilot_departs_but_not_while_the_server_is_away() -> None:
    desk = Desk()
    desk.sent()
    assert not of_kind(desk.step(19.0), Depart)
    desk.brain.failed(1, 1, desk.now)
    assert not of_kind(desk.step(5.0), Depart)
    desk.brain.answered(1, Answer(1, 1), desk.now)
    assert of_kind(desk.step(), Depart)


def test_a_forgotten_pilot_enrols_again_and_keeps_its_work() -> None:
    desk = Desk()
    desk.sent()
    desk.work(1, 1)
    desk.sent()
    desk.brain.refused(2, 1, "unknown-pilot", desk.now)
    commands = desk.step()
    assert of_kind(commands, EnrolAgain)
    assert not of_kind(commands, Send)
    desk.brain.enrolled(8, 5)
    (full,) = desk.sent()
    assert (full.pilot, full.epoch, full.held) == (8, 5, [Held(1, 1, 1, 1)])


def test_a_sync_carries_a_bounded_load() -> None:
    desk = Desk(slots=3000)
    desk.sent()
    desk.work(1, *range(1, 2501))
    desk.sent()
    for key in desk.start_all():
        desk.end(key)
    (sync,) = desk.sent()
    assert len(sync.ends) == MOST_ENDS


def test_a_sync_carries_a_bounded_amount_of_output_and_files() -> None:
    desk = Desk(slots=3000)
    desk.sent()
    desk.work(1, *range(1, 101))
    desk.sent()
    for number, key in enumerate(desk.start_all()):
        holding = desk.brain.holding[key]
        end = End(1, holding.task.sequence, 1, number, "ok")
        if number % 2:
            end = end._replace(stdout="x" * 50_000)
        else:
            end = end._replace(files=[OutputFile("f", 37_500, "", "x" * 50_000)])
        put_aside = number % 4 == 3
        shown = end._replace(stdout="") if put_aside else end
        desk.brain.ended(key, shown, desk.now, size=50_000 if put_aside else None)
    (sync,) = desk.sent()
    assert len(sync.ends) == MOST_OUTPUT // 50_000


def test_attempts_that_need_something_wait_aside() -> None:
    desk = Desk(slots=4)
    desk.sent()
    ready, needy = Body(1, ["a"], []), Body(2, ["b"], [], inputs=[Input("x", "ab", 1)])
    tasks = [Task(1, 2, 0, []), Task(2, 1, 0, []), Task(3, 1, 1, [], inputs=[Input("y", "cd", 1)])]
    desk.brain.answered(1, Answer(1, 1, [ready, needy], tasks), desk.now)
    prepares = of_kind(desk.step(), Prepare)
    assert [one.start.key for one in prepares] == ["1.1", "1.3"]
    assert prepares[0].start.body is needy
    assert desk.start_all() == ["1.2"]
    desk.brain.prepared("1.3")
    assert desk.start_all() == ["1.3"]
    held = [Held(1, 1, 2, 0)]
    desk.brain.answered(2, Answer(1, 2, cancels=held), desk.now)
    desk.brain.prepared("1.1")  # too late
    assert desk.start_all() == []
    assert "1.1" not in desk.brain.holding


def test_one_that_cannot_be_prepared_has_ended() -> None:
    desk = Desk()
    desk.sent()
    body = Body(1, ["a"], [], setup="make")
    desk.brain.answered(1, Answer(1, 1, [body], [Task(1, 1, 0, [])]), desk.now)
    desk.step()
    desk.brain.ended("1.1", End(1, 1, 1, 0, "setup", message="no"), desk.now)
    desk.brain.prepared("1.1")
    assert desk.start_all() == []
    assert not desk.brain.holding


def test_draining_gives_the_unprepared_back() -> None:
    desk = Desk()
    desk.sent()
    body = Body(1, ["a"], [], setup="make")
    desk.brain.answered(1, Answer(1, 1, [body], [Task(1, 1, 0, [])]), desk.now)
    desk.brain.drain("asked to end", desk.now)
    (sync,) = desk.sent()
    assert [(end.sequence, end.outcome) for end in sync.ends] == [(1, "returned")]
    assert desk.brain.weight == 0


def test_the_first_in_the_queue_is_the_next_or_none_is() -> None:
    desk = Desk()
    desk.sent()
    desk.work(1, 1, 2)
    assert desk.brain.next_start(lambda start: start.task.sequence != 1) is None
    start = desk.brain.next_start(lambda start: True)
    assert start is not None
    assert start.key == "1.1"


def test_attempts_weigh_as_much_as_they_have_cores() -> None:
    desk = Desk(slots=4)
    desk.sent()
    body = Body(1, ["a"], [], needs=[Need(), Need(4)])
    tasks = [Task(number, 1, number, [], 1) for number in (1, 2, 3)] + [Task(4, 1, 4, [])]
    desk.brain.answered(1, Answer(1, 1, [body], tasks), desk.now)
    assert desk.brain.weight == 13
    desk.sent()
    desk.start_all()
    desk.end("1.4")
    assert desk.sent() != []
    desk.brain.answered(2, Answer(1, 2), desk.now)
    desk.brain.answered(3, Answer(1, 3), desk.now)
    desk.sent()
    desk.end("1.3")
    assert desk.sent() == []  # two slots' worth of work for every slot: there is time
    desk.end("1.2")
    assert desk.sent() != []
    assert desk.brain.weight == 4


def test_tags_go_out_with_the_next_sync_and_again_after_a_restart() -> None:
    desk = Desk()
    desk.brain.publish({"a": "1"})
    (first,) = desk.sent()
    assert first.tags == {"a": "1"}
    desk.work(1, 1)
    (second,) = desk.sent()
    assert second.tags is None
    desk.brain.answered(2, Answer(2, 2, resync=True), desk.now)
    (full,) = desk.sent()
    assert full.tags == {"a": "1"}


def test_whom_to_follow_is_known_until_it_changes() -> None:
    desk = Desk()
    desk.sent()
    desk.brain.answered(1, Answer(1, 1, follow=[Followed(1, -1)]), desk.now)
    desk.sent()
    desk.brain.answered(2, Answer(1, 2), desk.now)
    assert desk.brain.follow == [Followed(1, -1)]
    desk.sent()
    desk.brain.answered(3, Answer(1, 3, follow=[]), desk.now)
    assert desk.brain.follow == []


def test_an_end_that_had_files_to_send_is_as_old_as_it_is() -> None:
    desk = Desk()
    desk.sent()
    desk.work(1, 1)
    desk.sent()
    desk.start_all()
    desk.now += 10.0
    desk.brain.ended("1.1", End(1, 1, 1, 1, "ok", wall_seconds=2.0), desk.now, at=desk.now - 5.0)
    (sync,) = desk.sent()
    assert (sync.ends[0].age_seconds, sync.ends[0].queued_seconds) == (5.0, 3.0)


def test_keys_name_attempts() -> None:
    assert key_of(3, 17) == "3.17"


def test_it_comes_again_when_the_server_says() -> None:
    """A place in a line: neither earlier, nor later because it was told so before."""
    desk = Desk()
    (sync,) = desk.sent()
    for tries in range(1, 8):
        desk.brain.failed(sync.number, tries, desk.now, 3.25)
        assert desk.brain.away()
        assert desk.sent(3.2) == []
        assert desk.sent(0.06) == [sync]
    desk.brain.failed(sync.number, 8, desk.now)
    assert desk.sent(0.5) == [sync], "being told to wait is no failure"


def test_nobody_makes_it_wait_for_ever() -> None:
    desk = Desk()
    (sync,) = desk.sent()
    desk.brain.failed(sync.number, 1, desk.now, float("inf"))
    assert desk.sent(LONGEST_DELAY) == [sync]
    for tries, nonsense in enumerate((float("nan"), -5.0), 2):
        desk.brain.failed(sync.number, tries, desk.now, nonsense)
        assert desk.sent(LAST_BACKOFF) == [sync]


def test_attempts_of_a_bag_whose_files_are_here_start_at_once_until_its_files_change() -> None:
    desk = Desk()
    body = BODY._replace(inputs=[Input("a", "a" * 64, 1)])
    desk.brain.ready_until[1, 1] = desk.now + 1.0
    desk.sent()

    def take(number: int, *bodies: Body) -> list[str]:
        tasks = [Task(number, 1, number, [number])]
        desk.brain.answered(number, Answer(1, number, list(bodies), tasks), desk.now)
        return [command.start.key for command in of_kind(desk.step(), Prepare)]

    assert take(1, body) == ["1.1"]  # a bag's body has come: its files may be others
    desk.brain.ready_until[1, 1] = desk.now + 1.0
    assert take(2) == []
    assert desk.brain.queue[-1] == "1.2"
    desk.now += 1.0  # nobody has looked at the files since
    assert take(3) == ["1.3"]


def test_an_attempt_keeps_the_inputs_that_its_bag_had_when_it_came() -> None:
    desk = Desk()
    desk.sent()
    new = BODY._replace(inputs_version=2, env={"NEW": "1"})
    desk.brain.answered(1, Answer(1, 1, [BODY], [Task(1, 1, 1, [1])]), desk.now)
    desk.step()
    desk.brain.answered(2, Answer(1, 2, [new], [Task(2, 1, 2, [2])]), desk.now)
    starts = [desk.brain.next_start(), desk.brain.next_start()]
    assert [start.body for start in starts if start is not None] == [BODY, new]
