"""Calls in real slots: one worker for many, and exactly one outcome for each, whoever dies."""

import os
import signal
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from covey.pilot.calls import call_worker
from covey.pilot.calls.call_records import CALL_FILE
from covey.pilot.protocol.messages import Body, End, Input, Need
from covey.pilot.slots.orders import Link, Order, Outcome
from covey.pilot.slots.slot_files import Space
from tests.integration.pilot_stand import Stand, pilot, standing
from tests.integration.slots_harness import ENV, Harness, alive, wait_until
from tests.integration.test_pilot_sandbox import WAYS, place, shared

__all__ = ["place"]  # a fixture

WORKER = Path(__file__).parent / "calls_worker.py"


class Calls:
    def __init__(self, slots: Harness, ahead: bool = True) -> None:
        self.harness = slots
        self.ahead = ahead
        self.plan = self.planned()

    def planned(self, links: Sequence[Link] = (), **env: str) -> int:
        env = {**ENV, **env, **({"AHEAD": "yes"} if self.ahead else {})}
        argv = [sys.executable, str(WORKER)]
        return self.harness.plan(env, calls=argv, ahead=self.ahead, links=list(links))

    def give(self, key: str, code: str, plan: int = 0, **fields: Any) -> None:
        call = b64encode(code.encode()).decode()
        order = Order(key, plan or self.plan, [], call=call, **fields)
        assert self.harness.slots.offer(order)

    def begin(self, key: str, code: str, **fields: Any) -> int:
        """Give this call and wait until the worker does it; the worker's process id. (A call that
        the worker was sent and has not begun is given back when it is cancelled.)"""
        begun = self.harness.directory.parent / f"begun-{key}"
        self.give(key, f"open({str(begun)!r}, 'w').close()\n{code}", **fields)
        wait_until(begun.exists)
        return self.harness.wait_running(key)

    def do(self, code: str, plan: int = 0, **fields: Any) -> Outcome:
        key = f"call-{len(self.harness.found)}"
        self.give(key, code, plan, **fields)
        return self.harness.wait(key)[0]

    def worker(self) -> int:
        return int(value(self.do(f"import os; answer = b'v' + {PID}")))


def wait_gone(pid: int) -> None:
    wait_until(lambda: not alive(pid))


PID = "str(os.getpid()).encode()"


def value(outcome: Outcome, name: str = "value") -> bytes:
    assert outcome.kind == ("ok" if name == "value" else "failed"), outcome
    return b64decode(json.decode(outcome.result)[name])


@pytest.fixture(params=["ahead", "one by one"])
def calls(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Calls]:
    harness = Harness(tmp_path / "slots", 1, grace_seconds=0.3)
    yield Calls(harness, request.param == "ahead")
    harness.close()


def test_a_worker_that_ends_while_its_slot_waits_for_room_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, looked = tmp_path / "full", tmp_path / "looked"

    def short(self: Space) -> bool:
        if full.exists():
            looked.touch()
        return full.exists()

    monkeypatch.setattr(Space, "short", short)
    harness = Harness(tmp_path / "slots", 1, grace_seconds=0.3)
    calls = Calls(harness, ahead=False)
    # Its child holds the line open: nothing but its end tells.
    code = f"import os, time; os.fork() or time.sleep(60); answer = b'v' + {PID}"
    pid = int(value(calls.do(code)))
    full.touch()
    calls.give("next", "answer = b'vdone'")
    wait_until(looked.exists)
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    full.unlink()
    assert value(harness.wait("next")[0]) == b"done"
    harness.close()


@pytest.mark.parametrize("ahead", [True, False])
def test_what_a_worker_has_started_may_clean_up_when_a_call_takes_too_long(
    tmp_path: Path, ahead: bool
) -> None:
    calls = Calls(Harness(tmp_path / "slots", 1, grace_seconds=20), ahead)
    child = "trap 'sleep 0.2; echo saved; exit 0' TERM; while :; do sleep 0.02; done"
    code = f"import subprocess, time; subprocess.Popen(['sh', '-c', {child!r}]); time.sleep(60)"
    found = calls.do(code, limit_seconds=1)
    assert (found.kind, found.signal, found.stdout) == ("timeout", signal.SIGTERM, b"saved\n")
    calls.harness.close()


def test_one_worker_does_call_after_call(calls: Calls) -> None:
    first = calls.do("import os; answer = b'v' + str(os.getpid()).encode()")
    assert (first.exit_code, first.signal, first.message) == (0, 0, "")
    assert first.started > 0
    for count in range(1, 20):
        outcome = calls.do("answer = b'v%d %d' % (os.getpid(), served)")
        assert value(outcome) == value(first) + b" %d" % count


def test_many_calls_at_once_come_back_each_with_its_own(calls: Calls) -> None:
    for number in range(300):
        while not calls.harness.slots.free():
            calls.harness.note(calls.harness.slots.read(0.1))
        calls.give(f"k{number}", f"answer = b'v{number}'")
    found = calls.harness.wait(*(f"k{number}" for number in range(300)))
    assert [value(outcome) for outcome in found] == [b"%d" % n for n in range(300)]


def test_calls_that_come_one_by_one_find_the_worker_that_is_there(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", 4)
    calls = Calls(harness)
    assert len({calls.worker() for _ in range(6)}) == 1
    harness.close()


def test_what_a_worker_prints_belongs_to_the_call(calls: Calls) -> None:
    calls.do("import sys")
    one = calls.do("print('one', 1); print('bad', file=sys.stderr)")
    two = calls.do("pass")
    three = calls.do("sys.stdout.write('x' * 200000)")
    assert (one.stdout, one.stderr) == (b"one 1\n", b"bad\n")
    assert (two.stdout, two.stderr) == (b"", b"")
    assert three.stdout_bytes == 200000
    assert len(three.stdout) < 70000


def test_an_error_is_a_failed_task_with_the_words_that_come_first(calls: Calls) -> None:
    outcome = calls.do(r"answer = b'eValueError: no\0\x80pickle'")
    assert (outcome.kind, outcome.exit_code) == ("failed", 1)
    assert outcome.message == "ValueError: no"
    assert value(outcome, "error") == b"ValueError: no\0\x80pickle"
    assert value(calls.do("answer = b'v%d' % served")) == b"1", "the worker goes on"


def test_an_error_too_long_to_travel_keeps_its_words(calls: Calls) -> None:
    outcome = calls.do(r"answer = b'eboom\0' + b'x' * 100000")
    assert (outcome.kind, outcome.message, outcome.result) == ("failed", "boom", "")


def test_a_large_value_is_a_returned_file(calls: Calls) -> None:
    outcome = calls.do("open('big', 'wb').write(b'7' * 50_000_000); answer = b'fbig'")
    assert (outcome.kind, outcome.result) == ("ok", "")
    (file,) = outcome.files
    assert (file.path, file.size) == ("value", 50_000_000)
    assert Path(file.moved_to).read_bytes() == b"7" * 50_000_000
    Path(file.moved_to).unlink()
    again = calls.do("import os; answer = b'v' + repr(os.listdir()).encode()")
    assert value(again) == b"[]", "the file was the slot's"


def test_a_file_that_is_not_there_or_not_its_own_is_no_value(calls: Calls) -> None:
    for name in ("nothing", "../slot-0.out", "/etc/passwd", ""):
        outcome = calls.do(f"answer = b'f{name}'")
        assert outcome.kind == "output"
        assert "no file" in outcome.message
    calls.do("import os; os.symlink('/etc/passwd', 'link')")
    assert calls.do("answer = b'flink'").kind == "output"


def test_a_worker_that_ends_takes_its_call_with_it(calls: Calls) -> None:
    first = calls.worker()
    ended = calls.do("import os; print('last words', flush=True); os._exit(7)")
    assert (ended.kind, ended.exit_code, ended.signal) == ("failed", 7, 0)
    assert ended.message == "its worker ended: exit code 7"
    assert ended.stdout == b"last words\n"
    killed = calls.do("import os; os.kill(os.getpid(), 11)")
    assert (killed.kind, killed.signal) == ("failed", 11)
    good = calls.do("import os; os._exit(0)")
    assert (good.kind, good.exit_code) == ("failed", 0), "no answer is no success"
    assert calls.worker() != first


def test_an_answer_counts_though_the_worker_ends_with_it(calls: Calls) -> None:
    outcome = calls.do("import os; say(b'vdone'); os._exit(3)")
    assert value(outcome) == b"done"


def test_a_worker_that_dies_between_calls_takes_none_with_it(calls: Calls) -> None:
    for number in range(20):
        first = calls.worker()
        os.kill(first, signal.SIGKILL)
        if number % 2:
            wait_gone(first)
        assert calls.worker() != first


def test_a_call_over_its_time_ends_its_worker(calls: Calls) -> None:
    first = calls.worker()
    outcome = calls.do("import time; time.sleep(60)", limit_seconds=0.2)
    assert (outcome.kind, outcome.message) == ("timeout", "over its limit of 0.2 s")
    assert 0.2 <= outcome.wall_seconds < 5
    assert not alive(first)
    assert value(calls.do("answer = b'v%d' % served", limit_seconds=5)) == b"0"


def test_the_time_of_a_call_does_not_count_the_start_of_its_worker(calls: Calls) -> None:
    slow = calls.planned(BEFORE="import time; time.sleep(0.5)")
    outcome = calls.do("answer = b'v'", slow, limit_seconds=0.3)
    assert outcome.kind == "ok"
    assert outcome.wall_seconds < 0.3


def test_a_worker_that_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_worker, "START_SECONDS", 0.3)
    harness = Harness(tmp_path / "slots", 1, grace_seconds=0.1)
    calls = Calls(harness)
    silent = calls.planned(BEFORE="import time; time.sleep(60)")
    outcome = calls.do("pass", silent)
    assert (outcome.kind, outcome.message) == ("failed", "its worker did not start within 300 s")
    harness.close()


def test_a_worker_that_ends_before_it_says_anything_has_refused(calls: Calls) -> None:
    words = "import os, sys; print('no licence', file=sys.stderr, flush=True); os._exit(5)"
    outcome = calls.do("pass", calls.planned(BEFORE=words))
    assert (outcome.kind, outcome.exit_code) == ("failed", 126)
    assert outcome.message == "the worker did not start: exit code 5: no licence"


def test_a_cancelled_call_ends_its_worker_and_waiting_ones_are_returned(calls: Calls) -> None:
    pid = calls.begin("runs", "import time; time.sleep(60)")
    calls.give("waits", "answer = b'v'")
    calls.harness.slots.cancel("waits")
    assert calls.harness.wait("waits")[0].kind == "returned"
    calls.harness.slots.cancel("runs")
    assert calls.harness.wait("runs")[0].kind == "cancelled"
    assert not alive(pid)
    assert value(calls.do("answer = b'v%d' % served")) == b"0"


def test_a_cancelled_call_that_its_worker_has_not_begun_is_returned(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", 1, grace_seconds=0.3)
    calls = Calls(harness)
    ready, go = tmp_path / "ready", tmp_path / "go"
    slow = calls.planned(
        AFTER=f"open({str(ready)!r}, 'w').close()\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.005)"
    )
    calls.give("sent", "answer = b'v'", slow)
    wait_until(ready.exists)
    harness.slots.cancel("sent")
    assert harness.wait("sent")[0].kind in ("returned", "cancelled")
    go.touch()
    assert value(calls.do("answer = b'v%d' % served", slow)) == b"0", "it was not done"
    harness.close()


def test_a_worker_deaf_to_termination_is_killed_when_its_call_is_cancelled(calls: Calls) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    calls.begin("deaf", code + "open('deaf', 'w').close()\nwhile True: time.sleep(1)")
    calls.harness.slots.cancel("deaf")
    assert calls.harness.wait("deaf")[0].kind == "cancelled"


def test_a_worker_that_refuses_fails_its_calls_with_its_words(calls: Calls) -> None:
    refusing = calls.planned(HELLO="xthis is Python 2")
    for _ in range(2):
        outcome = calls.do("answer = b'v'", refusing)
        assert (outcome.kind, outcome.message) == ("failed", "this is Python 2")
    leaving = calls.planned(BEFORE="say(b'xnot here', False); sys.exit(1)")
    outcome = calls.do("answer = b'v'", leaving)
    assert (outcome.kind, outcome.message) == ("failed", "not here")


@pytest.mark.parametrize(
    "rubbish",
    [
        "answer = b'?what'",
        "answer = b'h{}'",
        "answer = b'xno'",
        "answer = b'v' + b'x' * 40001",
        "answer = b''; line.sendall(b'\\0\\0\\0\\0')",
        "answer = b''; line.sendall(b'\\xff\\xff\\xff\\xffrubbish')",
    ],
)
def test_rubbish_is_a_failure_and_the_end_of_the_worker(calls: Calls, rubbish: str) -> None:
    first = calls.worker()
    outcome = calls.do(rubbish)
    assert outcome.kind == "failed"
    assert outcome.message == "its worker sent an answer that covey cannot read"
    assert calls.worker() != first


def test_half_an_answer_is_none(calls: Calls) -> None:
    outcome = calls.do(r"import os; line.sendall(b'\0\0\0\7vhal'); os._exit(0)")
    assert (outcome.kind, outcome.exit_code) == ("failed", 0)


def test_a_worker_that_says_more_than_it_was_asked_does_no_other_call(calls: Calls) -> None:
    first = int(value(calls.do(f"import os; answer = b'v' + {PID}; say(answer); say(answer)")))
    time.sleep(0.05)
    assert calls.worker() != first


def test_a_worker_that_hangs_up_but_stays_is_ended(calls: Calls) -> None:
    outcome = calls.do("import time; line.close(); time.sleep(60)")
    assert outcome.kind == "failed"
    assert outcome.message == "its worker closed the connection without an answer"


def test_a_call_that_cannot_be_read_fails_alone(calls: Calls) -> None:
    calls.worker()
    assert calls.harness.slots.offer(Order("bad", calls.plan, [], call="abc"))
    (outcome,) = calls.harness.wait("bad")
    assert (outcome.kind, outcome.message) == ("failed", "the call is not base64")
    assert value(calls.do("answer = b'v%d' % served")) == b"1"


def test_a_long_call_is_read_by_a_slow_reader(calls: Calls) -> None:
    code = "answer = b'v%d' % len('" + "x" * 1_000_000 + "')"
    assert value(calls.do(code)) == b"1000000"


# Large ones


def in_file(tmp_path: Path, code: str) -> dict[str, Any]:
    path = tmp_path / f"large-{time.monotonic_ns()}"
    path.write_text(code)
    path.chmod(0o444)
    return {"links": [Link(str(path), CALL_FILE)]}


def offer(calls: Calls, key: str, **fields: Any) -> Outcome:
    assert calls.harness.slots.offer(Order(key, calls.plan, [], call="@digest:9", **fields))
    return calls.harness.wait(key)[0]


LOOK = "import os; answer = b'v%d ' % served + repr(os.listdir()).encode()"


def test_a_large_call_is_in_the_workers_directory_until_it_is_over(
    calls: Calls, tmp_path: Path
) -> None:
    padding = "#" + "x" * 3_000_000 + "\n"
    first = offer(calls, "first", **in_file(tmp_path, padding + LOOK))
    assert value(first) == b"0 ['.covey-call']", "the first thing that a worker does"
    assert value(calls.do(LOOK)) == b"1 []"
    again = offer(calls, "again", **in_file(tmp_path, LOOK + padding))
    assert value(again) == b"2 ['.covey-call']"
    error = offer(calls, "error", **in_file(tmp_path, "answer = b'eno'" + padding))
    assert (error.kind, error.message) == ("failed", "no")
    assert value(calls.do(LOOK)) == b"4 []"


def test_a_worker_that_dies_with_a_large_call_leaves_nothing(calls: Calls, tmp_path: Path) -> None:
    dies = offer(calls, "dies", **in_file(tmp_path, "import os; os._exit(5)"))
    assert (dies.kind, dies.exit_code) == ("failed", 5)
    assert value(calls.do(LOOK)) == b"0 []"
    os.kill(calls.worker(), signal.SIGKILL)
    assert value(offer(calls, "next", **in_file(tmp_path, LOOK))) == b"0 ['.covey-call']"
    slow = offer(calls, "slow", limit_seconds=0.2, **in_file(tmp_path, "while True: pass"))
    assert slow.kind == "timeout"
    assert value(calls.do(LOOK, limit_seconds=0.0)) == b"0 []"


def test_what_was_in_the_way_of_a_large_call_goes(calls: Calls, tmp_path: Path) -> None:
    calls.do("import os; os.symlink('/etc/passwd', '.covey-call')")
    assert value(offer(calls, "link", **in_file(tmp_path, LOOK))) == b"1 ['.covey-call']"
    calls.do("import os; os.mkdir('.covey-call')")
    blocked = offer(calls, "blocked", **in_file(tmp_path, LOOK))
    assert (blocked.kind, blocked.exit_code) == ("failed", 126)
    assert value(offer(calls, "anew", **in_file(tmp_path, LOOK))) == b"0 ['.covey-call']"


def test_a_large_call_whose_file_cannot_be_placed_is_the_hosts_fault(
    calls: Calls, tmp_path: Path
) -> None:
    calls.do("import os, shutil; shutil.rmtree(os.getcwd())")
    gone = offer(calls, "gone", **in_file(tmp_path, LOOK))
    assert gone.kind == "host", gone
    assert "cannot place the input .covey-call" in gone.message
    assert value(offer(calls, "anew", **in_file(tmp_path, LOOK))) == b"0 ['.covey-call']"
    missing = offer(calls, "missing", links=[Link(str(tmp_path / "no"), CALL_FILE)])
    assert missing.kind == "host"


def test_a_large_call_without_its_file_is_refused(calls: Calls) -> None:
    refused = offer(calls, "older")
    assert (refused.kind, refused.exit_code) == ("failed", 126)
    assert "this call is large, but the server sent no file for it" in refused.message
    assert value(calls.do(LOOK)) == b"0 []"


def test_another_bag_has_another_worker_in_a_clean_directory(calls: Calls) -> None:
    first = calls.worker()
    calls.do("open('left', 'w')")
    other = calls.planned(WHO="other")
    assert value(calls.do("import os; answer = b'v' + repr(os.listdir()).encode()", other)) == b"[]"
    assert not alive(first)
    process = calls.harness.run("echo $PPID")
    assert process.kind == "ok"
    assert value(calls.do("answer = b'v%d' % served")) == b"0"


def test_other_limits_need_another_worker(calls: Calls) -> None:
    first = calls.worker()
    get = f"import os; answer = b'v' + {PID}"
    second = int(value(calls.do(get, memory_mb=200)))
    assert int(value(calls.do(get, memory_mb=200))) == second != first
    assert int(value(calls.do(get, memory_mb=200, env={"CUDA_VISIBLE_DEVICES": "1"}))) != second


def test_a_call_over_its_memory_ends_as_such(calls: Calls) -> None:
    code = "x = b'x' * 300_000_000; import time; time.sleep(20)"
    outcome = calls.do(code, memory_mb=100)
    assert outcome.kind == "memory" or "MemoryError" in outcome.stderr.decode(), outcome
    assert outcome.kind != "ok"
    assert value(calls.do("answer = b'v%d' % served", memory_mb=100)) == b"0"


def test_a_bag_that_is_over_ends_its_worker(calls: Calls) -> None:
    first = calls.worker()
    calls.harness.slots.forget(calls.plan)
    wait_until(lambda: not alive(first))
    assert calls.harness.run("echo fine").kind == "ok"


def test_a_worker_deaf_to_its_line_is_killed_when_dismissed(calls: Calls) -> None:
    stays = calls.planned(BEFORE="import atexit, time; atexit.register(time.sleep, 60)")
    pid = int(value(calls.do(f"import os; answer = b'v' + {PID}", stays)))
    calls.harness.slots.forget(stays)
    wait_until(lambda: not alive(pid), 5)


def test_what_a_worker_started_ends_with_it(calls: Calls) -> None:
    code = "import subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    sleeper = int(value(calls.do(code + "answer = b'v%d' % p.pid")))
    assert alive(sleeper)
    calls.do("import os; os._exit(1)")
    wait_until(lambda: not alive(sleeper))


def test_inputs_are_there_for_the_worker(calls: Calls, tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.write_text("read me")
    plan = calls.planned([Link(str(source), "given")])
    get = "answer = b'v' + open('given', 'rb').read()"
    assert [value(calls.do(get, plan)) for _ in range(2)] == [b"read me"] * 2


def test_a_worker_that_cannot_be_started_fails_the_call(calls: Calls) -> None:
    plan = calls.harness.plan(ENV, calls=["no-such-python"])
    outcome = calls.do("pass", plan)
    assert (outcome.kind, outcome.exit_code) == ("failed", 127)
    assert outcome.message == "no-such-python: command not found"


def test_a_killed_slot_ends_its_worker_and_waiting_calls_are_returned(calls: Calls) -> None:
    calls.give("runs", "import time; time.sleep(60)")
    calls.give("waits", "answer = b'v'")
    pid = calls.harness.wait_running("runs")
    os.kill(calls.harness.slot_pids()[0], signal.SIGKILL)
    runs, waits = calls.harness.wait("runs", "waits")
    assert (runs.kind, waits.kind) == ("host", "returned")
    wait_until(lambda: not alive(pid))
    assert value(calls.do("answer = b'v%d' % served")) == b"0"


def test_an_idle_worker_ends_with_its_slot(calls: Calls) -> None:
    pid = calls.worker()
    os.kill(calls.harness.slot_pids()[0], signal.SIGKILL)
    wait_until(lambda: not alive(pid))


def test_tags_that_a_call_publishes_come_with_its_end(calls: Calls) -> None:
    outcome = calls.do("import os; open(os.environ['COVEY_TAGS'], 'w').write('a = 1\\n')")
    assert outcome.tags == "a = 1\n"


# With all of a pilot around it


@pytest.fixture
def stand() -> Iterator[Stand]:
    with standing() as found:
        yield found


def called(code: str) -> str:
    return b64encode(code.encode()).decode()


def a_bag(stand: Stand, **fields: Any) -> Body:
    data = WORKER.read_bytes()
    inputs = [Input("worker.py", stand.add(data), len(data))]
    argv = ["/usr/bin/python3", "worker.py"]
    return Body(1, argv, ["call"], env=dict(ENV), inputs=inputs, calls=True, **fields)


GET_PID = called(f"import os; answer = b'v' + {PID}")


def of_end(end: End) -> bytes:
    assert end.outcome == "ok", end
    return b64decode(json.decode(end.result)["value"])


def test_a_pilot_makes_calls_with_one_worker_a_slot(stand: Stand, tmp_path: Path) -> None:
    with pilot(stand, tmp_path / "pilot", "--slots", "2"):
        ends = stand.wait(stand.call(a_bag(stand), *[GET_PID] * 50))
        assert len({of_end(end) for end in ends}) <= 2
        big = called("open('x', 'wb').write(b'7' * 5_000_000); answer = b'fx'")
        (end,) = stand.wait(stand.call(a_bag(stand), big))
        (file,) = end.files
        assert (file.path, file.size) == ("value", 5_000_000)
        assert stand.arrived[file.digest] == b"7" * 5_000_000


def test_a_pilot_fetches_large_calls_and_makes_them(stand: Stand, tmp_path: Path) -> None:
    padding = "#" + "x" * 3_000_000 + "\n"
    large = [f"answer = b'v{number}'{padding}".encode() for number in (1, 2, 1)]
    with pilot(stand, tmp_path / "pilot", "--slots", "2"):
        ends = stand.wait(stand.call(a_bag(stand), large[0], GET_PID, *large[1:], GET_PID))
        assert [of_end(ends[index]) for index in (0, 2, 3)] == [b"1", b"2", b"1"]


def test_a_worker_knows_nothing_of_single_tasks(stand: Stand, tmp_path: Path) -> None:
    show = "import os; answer = b'v' + ' '.join(n for n in os.environ if 'COVEY' in n).encode()"
    with pilot(stand, tmp_path / "pilot", "--slots", "1"):
        (end,) = stand.wait(stand.call(a_bag(stand), called(show)))
        names = set(of_end(end).split())
    assert {b"COVEY_CALLS", b"COVEY_BAG", b"COVEY_TAGS"} < names
    assert not names & {b"COVEY_TASK", b"COVEY_ATTEMPT"}


@pytest.mark.parametrize("way", WAYS)
def test_calls_within_walls(stand: Stand, place: Path, way: str) -> None:
    big = called("open('x', 'wb').write(b'7' * 100_000); answer = b'fx'")
    look = called(
        "import os; answer = b'v%d' % len([n for n in os.listdir('/proc') if n.isdigit()])"
    )
    over = called("import os; os._exit(3)")
    with shared(stand, place, way):
        large = b"answer = b'v' + repr(os.stat('.covey-call').st_nlink).encode()#" + bytes(9 << 20)
        large = large.replace(b"\0", b"x")
        first, second = stand.wait(stand.call(a_bag(stand), b"import os\n" + large, look))
        assert of_end(first) == b"1", "the host's own copy is not for strangers"
        assert of_end(second)
        seen, file, ended, again = stand.wait(stand.call(a_bag(stand), look, big, over, look))
        assert int(of_end(seen)) <= 4, "the host's processes"
        assert file.files[0].size == 100_000
        assert (ended.outcome, ended.exit_code) == ("failed", 3)
        assert of_end(again) == of_end(seen)
        slow = a_bag(stand)._replace(bag=2, needs=[Need(limit_seconds=0.3)])
        (late,) = stand.wait(stand.call(slow, called("import time; time.sleep(60)")))
        assert late.outcome == "timeout"
