"""Calls, without any process: the frames of a worker's line, and orders that differ in the call."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from covey.pilot.calls.call_records import (
    GO,
    HEAD,
    LABEL,
    MOST_CALL,
    MOST_PACKET,
    ON_LINE,
    PACKED,
    frame,
)
from covey.pilot.calls.worker_process import Worker, queue
from covey.pilot.protocol.messages import Body, Need, Task
from covey.pilot.slots import outcomes
from covey.pilot.slots.capacity import Grant
from covey.pilot.slots.order_template import Template
from covey.pilot.slots.orders import Link
from covey.pilot.slots.workspace import GivenOrder

PLAN: Any = object()


def given(number: int = 1, **fields: Any) -> GivenOrder:
    order = GivenOrder(number, f"1.{number}", PLAN, [], {}, 0.0, 0, [], [], [], "YQ==", 0)
    return order._replace(**fields)


class Line:
    """Both ends; the test speaks as the worker does."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        ends = queue()
        assert ends is not None
        self.queue = ends[1].dup()
        self.worker = Worker(given(), 1, ours, ends)

    def says(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.theirs.sendall(piece)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.theirs.close()
    made.queue.close()
    made.worker.hang_up()


def test_frames_are_heard_one_by_one_however_they_come(line: Line) -> None:
    data = frame(b"h{}") + frame(b"vone") + frame(b"v" + b"x" * 1000)
    heard = []
    for place in range(len(data)):
        line.says(data[place : place + 1])
        heard.append(line.worker.hear())
    assert [one for one in heard if one] == [[b"h{}"], [b"vone"], [b"v" + b"x" * 1000]]
    assert heard[6] == [b"h{}"], "as soon as it is there"
    line.says(data, data[:10])
    assert line.worker.hear() == [b"h{}", b"vone", b"v" + b"x" * 1000, b"h{}"]
    assert line.worker.hear() == []


@pytest.mark.parametrize("length", [0, MOST_CALL + HEAD.size + 2, 0xFFFFFFFF])
def test_a_length_that_cannot_be_is_a_mistake(line: Line, length: int) -> None:
    line.says(frame(b"v"), length.to_bytes(4, "big"))
    assert line.worker.hear() == [b"v", b"?"]


def test_the_longest_answer_is_heard(line: Line) -> None:
    answer = frame(b"e" + b"x" * MOST_CALL)
    heard: list[bytes] = []
    sent = 0
    while not heard:
        sent += line.theirs.send(answer[sent : sent + 60_000])
        heard = line.worker.hear()
    assert [len(one) for one in heard] == [MOST_CALL + 1]


def test_a_worker_that_has_read_its_call_ends_with_it(line: Line) -> None:
    line.worker.give(1, b"call")
    assert line.theirs.recv(100) == frame(b"call")
    line.theirs.close()
    assert line.worker.hear() == []
    assert line.worker.closed
    assert not line.worker.untaken


def test_a_worker_that_has_not_read_its_call_did_not_begin_it(line: Line) -> None:
    line.worker.give(1, b"call")
    line.theirs.close()
    assert line.worker.hear() == []
    assert line.worker.untaken


def test_nor_one_that_was_gone_before(line: Line) -> None:
    line.theirs.close()
    line.worker.give(1, b"call")
    assert line.worker.untaken


def test_a_worker_suits_calls_of_its_bag_and_limits(line: Line) -> None:
    assert line.worker.suits(given(7, limit_seconds=5.0, call="Yg=="))
    assert not line.worker.suits(given(plan=object()))
    assert not line.worker.suits(given(memory_mb=100))
    assert not line.worker.suits(given(cores=[1]))
    assert not line.worker.suits(given(env={"CUDA_VISIBLE_DEVICES": "1"}))


def test_a_worker_that_speaks_unasked_suits_nobody(line: Line) -> None:
    line.says(frame(b"vextra"))
    assert not line.worker.suits(given(2))


AHEAD = b'{"ahead": 1, "cpu": 2.5}'


def test_a_worker_that_does_not_know_of_the_queue_gets_calls_on_the_line(line: Line) -> None:
    for told in (b"{}", b"", b"[]", b"nothing", b'{"ahead": 1}', b'{"ahead": 1, "cpu": NaN}'):
        line.worker.greet(told)
        assert not line.worker.ahead
    line.worker.give(1, b"call")
    assert line.theirs.recv(100) == frame(b"call")
    assert line.worker.take_back() == set()


def test_calls_are_packets_until_one_of_both_takes_them(line: Line) -> None:
    line.worker.greet(AHEAD)
    line.worker.give(1, b"one")
    assert line.worker.give_ahead(2, b"two")
    assert line.worker.give_ahead(3, b"three")
    assert line.queue.recv(100) == LABEL.pack(PACKED, 1) + b"one"
    assert line.worker.take_back() == {2, 3}
    assert line.worker.give_ahead(4, b"four")
    assert line.queue.recv(100) == LABEL.pack(PACKED, 4) + b"four"
    assert line.worker.take_back() == set()
    assert not line.worker.unfit


def test_a_call_that_no_packet_holds_comes_on_the_line(line: Line) -> None:
    line.worker.greet(AHEAD)
    assert not line.worker.give_ahead(1, b"x" * (MOST_PACKET + 1))
    line.worker.give(1, b"x" * MOST_PACKET)
    assert line.queue.recv(1 << 17) == LABEL.pack(PACKED, 1) + b"x" * MOST_PACKET
    line.worker.give(2, b"x" * (MOST_PACKET + 1))
    assert line.queue.recv(100) == LABEL.pack(ON_LINE, 2)
    assert line.theirs.recv(1 << 17) == frame(b"x" * (MOST_PACKET + 1))
    line.worker.give(3, b"x" * (MOST_PACKET + 1))
    assert line.worker.take_back() == {3}
    assert line.worker.unfit, "it would take what is on the line for something else"
    assert not line.worker.suits(given(2))


def test_a_full_queue_takes_no_more(line: Line) -> None:
    line.worker.greet(AHEAD)
    count = 0
    while line.worker.give_ahead(count, b"x" * 50_000):
        count += 1
    assert 0 < count < 1000
    assert line.worker.take_back() == set(range(count))
    assert line.worker.give_ahead(count, b"x")


def test_what_a_worker_says_of_times_is_believed_within_reason(line: Line) -> None:
    worker = line.worker
    worker.greet(AHEAD)
    now = worker.since + 10.0

    def timed(wall: float, cpu: float) -> tuple[float, float]:
        found = worker.timed(7, b"v" + HEAD.pack(7, wall, cpu, True) + b"value", now)
        assert found[2:] == (True, b"value")
        return found[:2]

    assert timed(1.5, 3.0) == (1.5, 0.5)
    assert timed(0.5, 3.25) == (0.5, 0.25)
    nan = float("nan")
    assert timed(nan, nan) == (-1.0, 0.0)
    assert timed(11.0, float("inf")) == (-1.0, 0.0)
    assert timed(-1.0, 1.0) == (-1.0, 0.0)
    assert timed(0.0, 3.5) == (0.0, 0.25)
    assert worker.repeats(b"e" + HEAD.pack(7, 0.0, 0.0, False))
    assert not worker.repeats(b"e" + HEAD.pack(8, 0.0, 0.0, False))
    for wrong in (b"v", b"vshort", b"v" + HEAD.pack(8, 0.0, 4.0, False)):
        with pytest.raises(ValueError, match="no"):
            worker.timed(7, wrong, now)


def test_a_worker_is_told_to_go_on(line: Line) -> None:
    line.worker.greet(AHEAD)
    line.worker.go_on()
    assert line.theirs.recv(100) == frame(GO)


def test_only_bags_that_may_be_repeated_are_called_ahead() -> None:
    body = Body(3, ["x"], ["call"], calls=True)
    assert not Template(body, {}).plan.ahead, "an older server says nothing"
    assert Template(body._replace(ahead=True), {}).plan.ahead


def test_the_orders_of_a_bag_of_calls_differ_in_the_call_alone() -> None:
    body = Body(3, ["python3", "{call}"], ["call"], needs=[Need(2, 500, 0, 0, 9.0)], calls=True)
    template = Template(body, {"PATH": "/bin"})
    one = template.order("1.1", Task(1, 3, 41, ["YQ=="]))
    two = template.order("1.2", Task(2, 3, 42, ["Yg=="]))
    assert two._replace(key="1.1", call="YQ==") == one
    assert (one.argv, one.call, one.limit_seconds, one.memory_mb) == ([], "YQ==", 9.0, 500)
    assert template.plan.calls == ["python3", "{call}"], "nothing is filled in"
    assert template.plan.env["COVEY_CORES"] == "2"


def test_a_large_call_has_its_file_as_a_link() -> None:
    template = Template(Body(3, ["x"], ["call"], calls=True), {})
    links = [Link("/cache/ab", ".covey-call")]
    one = template.order("1.1", Task(1, 3, 41, ["@ab"]), links=links)
    two = template.order("1.1", Task(1, 3, 41, ["@ab"]))
    assert one.links == links
    assert two.links == []
    assert one._replace(links=[]) == two


def test_a_call_with_a_gpu_of_its_own_has_another_worker() -> None:
    template = Template(Body(3, ["x"], ["call"], needs=[Need(gpus=1)], calls=True), {})
    grants = [Grant(["0"], []), Grant(["1"], [])]
    orders = [template.order("1.1", Task(1, 3, 4, ["YQ=="]), grant) for grant in grants]
    assert [order.env["CUDA_VISIBLE_DEVICES"] for order in orders] == ["0", "1"]


def test_no_end_of_a_worker_is_an_answer() -> None:
    assert outcomes.of_worker(0, "", 0.0) == ("failed", 0, 0, "its worker ended: exit code 0")
    assert outcomes.of_worker(9, "", 0.0).signal == 9
    assert outcomes.of_worker(15, "timeout", 2.0).message == "over its limit of 2 s"
    assert outcomes.of_worker(15, "cancelled", 0.0).kind == "cancelled"
    assert outcomes.of_worker(None, "", 0.0).kind == "host"


def test_a_worker_that_never_began_is_told_of_with_its_last_words() -> None:
    ended = outcomes.of_worker(127 << 8, "", 0.0).message
    told = "the worker did not start: exit code 127"
    assert outcomes.not_started(ended, b"") == told
    assert (
        outcomes.not_started(ended, b"sh: 1\nthere is no python9\n")
        == told + ": there is no python9"
    )
