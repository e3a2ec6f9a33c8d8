"""A sync that the server refuses as invalid is sent otherwise, and wedges nothing."""

from covey.pilot.protocol.commands import Send
from covey.pilot.protocol.messages import MOST_WANT, Answer, End, Sync
from tests.unit.pilot.protocol.test_pilot_state import Desk, of_kind


class Picky:
    """A server that takes no sync with one of these attempts in its ends, or with tags."""

    def __init__(self, desk: Desk, *bad: int, tags: bool = True) -> None:
        self.desk = desk
        self.bad = bad
        self.tags = tags
        self.taken: list[End] = []
        self.replaced: list[End] = []
        self.refusals = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            for command in of_kind(self.desk.step(0.5), Send):
                self._hear(command)

    def _hear(self, command: Send) -> None:
        desk, sync = self.desk, command.sync
        bad = [
            end for end in sync.ends if end.sequence in self.bad and "refused" not in end.message
        ]
        if bad or (sync.tags is not None and not self.tags):
            self.refusals += 1
            desk.brain._open[sync.number].retry_at = None
            self.replaced += desk.brain.refused(
                sync.number, command.attempt, "invalid", desk.now, "it is off"
            )
        elif sync.ends:
            self.taken += sync.ends
            desk.brain.answered(sync.number, Answer(1, sync.number), desk.now)


def busy_desk(count: int) -> Desk:
    desk = Desk(slots=count)
    desk.sent()
    desk.work(1, *range(1, count + 1))
    for key in desk.start_all():
        desk.end(key)
    return desk


def test_one_end_that_is_refused_does_not_hold_up_the_others() -> None:
    desk = busy_desk(100)
    server = Picky(desk, 37, 38)
    server.run(60)
    assert sorted(end.sequence for end in server.taken) == list(range(1, 101))
    assert {end.sequence for end in server.taken if end.outcome != "ok"} == {37, 38}
    (words,) = {end.message for end in server.taken if end.outcome == "output"}
    assert words == "the server refused the report of this attempt: it is off"
    assert [end.sequence for end in server.replaced] == [37, 38]
    assert server.refusals < 30
    assert not desk.brain.undelivered()


def test_tags_that_are_refused_are_dropped_and_ends_arrive() -> None:
    desk = busy_desk(10)
    desk.brain.publish({"a": "b"})
    server = Picky(desk, tags=False)
    server.run(20)
    assert len(server.taken) == 10
    assert all(end.outcome == "ok" for end in server.taken)
    assert server.refusals <= 2
    desk.brain.publish({"a": "c"})
    server.run(5)
    assert server.refusals <= 3


def test_tags_that_are_good_arrive_though_an_end_beside_them_was_refused() -> None:
    desk = busy_desk(2)
    desk.brain.publish({"a": "b"})
    server = Picky(desk, 1)
    sent: list[Sync] = []
    for _ in range(20):
        for command in of_kind(desk.step(0.5), Send):
            sent.append(command.sync)
            server._hear(command)
    assert len(server.taken) == 2
    assert any(one.tags == {"a": "b"} and not one.ends for one in sent)


def test_it_never_asks_for_more_than_the_server_lets_it() -> None:
    desk = Desk(slots=4096)
    desk.sent()
    desk.work(1, 1)
    desk.start_all()
    desk.end("1.1", wall=0.0002)
    assert max(one.want for one in desk.sent(1.0)) == MOST_WANT
