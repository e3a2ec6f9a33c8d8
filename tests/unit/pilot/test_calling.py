"""Calls, without any process: the frames of a worker's line, and orders that differ in the call."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from covey.pilot import judge
from covey.pilot.bench import Given
from covey.pilot.hired import Worker
from covey.pilot.calling import MOST_CALL, frame
from covey.pilot.messages import Body, Need, Task
from covey.pilot.orders import Link
from covey.pilot.room import Grant
from covey.pilot.template import Template

PLAN: Any = object()


def given(number: int = 1, **fields: Any) -> Given:
    order = Given(number, f"1.{number}", PLAN, [], {}, 0.0, 0, [], [], [], "YQ==")
    return order._replace(**fields)


class Line:
    """Both ends; the test speaks as the worker does."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.worker = Worker(given(), 1, ours)

    def says(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.theirs.sendall(piece)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.theirs.close()
    made.worker.line.close()


def test_frames_are_heard_one_by_one_however_they_come(line: Line) -> None:
    data = frame(b"h{}") + frame(b"vone") + frame(b"v" + b"x" * 1000)
    heard = []
    for place in range(len(data)):
        line.says(data[place : place + 1])
        heard.append(line.worker.hear())
    assert [one for one in heard if one] == [b"h{}", b"vone", b"v" + b"x" * 1000]
    assert heard[6] == b"h{}", "as soon as it is there"
    line.says(data)
    assert [line.worker.hear() for _ in range(4)] == [b"h{}", b"vone", b"v" + b"x" * 1000, b""]


@pytest.mark.parametrize("length", [0, MOST_CALL + 2, 0xFFFFFFFF])
def test_a_length_that_cannot_be_is_a_mistake(line: Line, length: int) -> None:
    line.says(length.to_bytes(4, "big"))
    assert line.worker.hear() == b"?"


def test_the_longest_answer_is_heard(line: Line) -> None:
    answer = frame(b"e" + b"x" * MOST_CALL)
    heard, sent = b"", 0
    while not heard:
        sent += line.theirs.send(answer[sent : sent + 60_000])
        heard = line.worker.hear()
    assert len(heard) == MOST_CALL + 1


def test_a_worker_that_has_read_its_call_ends_with_it(line: Line) -> None:
    line.worker.give(b"call")
    assert line.theirs.recv(100) == frame(b"call")
    line.theirs.close()
    assert line.worker.hear() == b""
    assert line.worker.closed
    assert not line.worker.untaken


def test_a_worker_that_has_not_read_its_call_did_not_begin_it(line: Line) -> None:
    line.worker.give(b"call")
    line.theirs.close()
    assert line.worker.hear() == b""
    assert line.worker.untaken


def test_nor_one_that_was_gone_before(line: Line) -> None:
    line.theirs.close()
    line.worker.give(b"call")
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
    assert judge.of_worker(0, "", 0.0) == ("failed", 0, 0, "its worker ended: exit code 0")
    assert judge.of_worker(9, "", 0.0).signal == 9
    assert judge.of_worker(15, "timeout", 2.0).message == "over its limit of 2 s"
    assert judge.of_worker(15, "cancelled", 0.0).kind == "cancelled"
    assert judge.of_worker(None, "", 0.0).kind == "host"
