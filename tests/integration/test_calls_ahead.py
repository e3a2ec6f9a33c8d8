"""Calls that are given ahead, in real slots: who is blamed, what runs again, what belongs to whom.

What a call did is in a journal, one line for each: so it is known what ran, and how often."""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.executor.packing import Packer, Small
from covey.executor.program import NAME, program
from covey.executor.unpacking import exception
from covey.executor.unpacking import value as unpacked
from covey.pilot.slots import slot_pool
from covey.pilot.slots.orders import Link, Order, Outcome
from tests.integration.slots_harness import ENV, Harness, alive, wait_until
from tests.integration.test_calls import WORKER, Calls, value, wait_gone

NOTES = "file = open({!r}, 'a'); file.write('{}\\n'); file.close()\n"
STALL = "import time; time.sleep({})\n"
PEEK = "queue.recv(1, socket.MSG_PEEK)"


class Ahead(Calls):
    def __init__(self, harness: Harness, journal: Path) -> None:
        super().__init__(harness)
        self.journal = journal
        journal.touch()

    def note(self, key: str, code: str = "", **fields: Any) -> None:
        """A call that writes down its key, and does that."""
        self.give(key, NOTES.format(str(self.journal), key) + code, **fields)

    def ran(self) -> list[str]:
        return self.journal.read_text().split()

    def read(self) -> bool:
        self.harness.note(self.harness.slots.read(0.01))
        return False

    def wait_ran(self, key: str) -> None:
        wait_until(lambda: key in self.ran())

    def kinds(self, keys: list[str]) -> list[str]:
        return [outcome.kind for outcome in self.harness.wait(*keys)]


@pytest.fixture(autouse=True)
def deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots hold many calls, however long those before took."""
    for name in ("_SHALLOW", "_DEEPEST"):
        monkeypatch.setattr(slot_pool, name, 200)


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[Ahead]:
    harness = Harness(tmp_path / "slots", 1, grace_seconds=0.3)
    made = Ahead(harness, tmp_path / "journal")
    yield made
    harness.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Ahead]:
    harness = Harness(tmp_path / "slots", 2, grace_seconds=0.3)
    made = Ahead(harness, tmp_path / "journal")
    yield made
    harness.close()


KEYS = [f"k{number}" for number in range(30)]
nothing = bool  # the simplest function


def test_calls_wait_where_their_worker_is(calls: Ahead) -> None:
    calls.give("asks", f"import select, socket; select.select([queue], [], [], 20); {PEEK}")
    for key in KEYS:
        calls.note(key)
    assert calls.kinds(["asks", *KEYS]) == ["ok"] * 31
    assert calls.ran() == KEYS


def test_nothing_is_given_ahead_of_a_bag_that_must_not_be_repeated(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "slots", 1)
    calls = Ahead(harness, tmp_path / "journal")
    plan = harness.plan({**ENV, "AHEAD": "yes"}, calls=[sys.executable, str(WORKER)])
    calls.give("asks", f"import socket, time; time.sleep(0.1); {PEEK}", plan)
    calls.give("next", "answer = b'v%d' % served", plan)
    asks, after = harness.wait("asks", "next")
    assert (asks.kind, asks.exit_code) == ("failed", 1)
    assert b"BlockingIOError" in asks.stderr
    assert value(after) == b"0"
    harness.close()


@pytest.mark.parametrize("place", [0, 1, 7, 29])
def test_a_worker_takes_with_it_the_call_that_it_does(calls: Ahead, place: int) -> None:
    calls.give("first", STALL.format(0.1))
    for number, key in enumerate(KEYS):
        calls.note(key, "import os; os._exit(7)" if number == place else "")
    found = calls.harness.wait(*KEYS)
    wrong = [outcome for outcome in found if outcome.kind != "ok"]
    assert [(one.key, one.kind, one.exit_code) for one in wrong] == [(KEYS[place], "failed", 7)]
    assert calls.ran() == KEYS, "in their order, and none twice"


def test_a_worker_that_is_killed_is_no_harm_to_those_behind(calls: Ahead) -> None:
    pid = calls.worker()
    calls.begin("first", STALL.format(30))
    for key in KEYS:
        calls.note(key)
    os.kill(pid, signal.SIGKILL)
    (first,) = calls.harness.wait("first")
    assert (first.kind, first.signal) == ("failed", 9)
    assert calls.kinds(KEYS) == ["ok"] * 30
    assert calls.ran() == KEYS


def test_workers_killed_again_and_again_lose_nothing(calls: Ahead) -> None:
    chance = random.Random(5)
    blamed = 0
    for turn in range(12):
        keys = [f"turn-{turn}-{number}" for number in range(60)]
        pid = calls.worker()
        for key in keys:
            calls.note(key)
        time.sleep(chance.random() * 0.004)
        os.kill(pid, signal.SIGKILL)
        for outcome in calls.harness.wait(*keys):
            assert outcome.kind == "ok" or (outcome.kind, outcome.signal) == ("failed", 9)
            blamed += outcome.kind != "ok"
    ran = Counter(calls.ran())
    assert set(ran.values()) == {1}, "what had not begun begins once"
    assert blamed <= 12
    assert len(ran) >= 12 * 60 - blamed


def test_a_worker_that_dies_before_its_first_call_takes_it_with_it(calls: Ahead) -> None:
    dies = calls.planned(AFTER="import os; os._exit(4)")
    for key in KEYS[:3]:
        calls.note(key, plan=dies)
    found = calls.harness.wait(*KEYS[:3])
    assert [(one.kind, one.exit_code) for one in found] == [("failed", 4)] * 3
    assert not calls.ran()


def test_a_call_over_its_time_is_no_harm_to_those_behind(calls: Ahead) -> None:
    calls.give("first", STALL.format(0.1))
    for number, key in enumerate(KEYS):
        calls.note(key, STALL.format(60) if number == 5 else "", limit_seconds=2)
    found = calls.harness.wait(*KEYS)
    wrong = [(one.key, one.kind) for one in found if one.kind != "ok"]
    assert wrong == [("k5", "timeout")]
    assert 2 <= found[5].wall_seconds < 20
    assert calls.ran() == KEYS


def test_a_long_call_is_not_late_for_those_before_it(calls: Ahead) -> None:
    for key in KEYS[:8]:
        calls.note(key, STALL.format(0.4), limit_seconds=2)
    assert calls.kinds(KEYS[:8]) == ["ok"] * 8


def test_a_call_that_has_not_begun_can_be_cancelled(calls: Ahead) -> None:
    pid = calls.worker()
    go = calls.journal.with_name("go")
    calls.begin("first", f"import time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.005)")
    for key in KEYS:
        calls.note(key)
    for key in KEYS[3:6]:
        calls.harness.slots.cancel(key)
    assert calls.kinds(KEYS[3:6]) == ["returned"] * 3
    assert "first" not in calls.harness.found, "at once"
    calls.harness.slots.recall(KEYS[6:8])
    assert calls.kinds(KEYS[6:8]) == ["returned"] * 2
    go.touch()
    left = KEYS[:3] + KEYS[8:]
    assert calls.kinds(["first", *left]) == ["ok"] * 26
    assert calls.ran() == left
    assert calls.worker() == pid


def test_a_call_that_is_cancelled_is_no_harm_to_those_behind(calls: Ahead) -> None:
    calls.note("first", STALL.format(60))
    for key in KEYS:
        calls.note(key)
    calls.wait_ran("first")
    calls.harness.slots.recall(["first"])
    time.sleep(0.05)
    calls.harness.slots.cancel("first")
    assert calls.kinds(["first", *KEYS]) == ["cancelled"] + ["ok"] * 30
    assert calls.ran() == ["first", *KEYS]


def test_cancels_at_any_moment_mean_what_they_say(calls: Ahead) -> None:
    chance = random.Random(7)
    kinds: Counter[str] = Counter()
    for turn in range(10):
        keys = [f"turn-{turn}-{number}" for number in range(80)]
        for key in keys:
            calls.note(key)
        for key in chance.sample(keys, 20):
            time.sleep(chance.random() * 0.0004)
            if chance.random() < 0.5:
                calls.harness.slots.cancel(key)
            else:
                calls.harness.slots.recall([key])
        for outcome in calls.harness.wait(*keys):
            kinds[outcome.kind] += 1
            assert outcome.kind in ("ok", "returned", "cancelled")
        ran = Counter(calls.ran())
        for key in keys:
            kind = calls.harness.found[key].kind
            most = 0 if kind == "returned" else 1
            assert most - (kind == "cancelled") <= ran[key] <= most, (key, kind)
    assert kinds["ok"] > 500


def test_what_waits_behind_a_long_call_goes_to_a_slot_that_is_idle(pair: Ahead) -> None:
    pair.note("long", STALL.format(60))
    pair.wait_ran("long")
    for key in KEYS:
        pair.note(key)
    assert pair.kinds(KEYS) == ["ok"] * 30
    assert "long" not in pair.harness.found
    assert sorted(pair.ran()) == sorted(["long", *KEYS])
    pair.harness.slots.cancel("long")


def test_large_calls_and_other_bags_wait_for_their_turn(calls: Ahead, tmp_path: Path) -> None:
    other = calls.planned(WHO="other")
    path = tmp_path / "large"
    path.write_text(NOTES.format(str(calls.journal), "large") + "#" * 100_000)
    long = "#" * 90_000 + "\n"
    for key in KEYS[:10]:
        calls.note(key)
    order = Order("large", calls.plan, [], call="@large", links=[Link(str(path), ".covey-call")])
    assert calls.harness.slots.offer(order)
    calls.note(KEYS[10])
    calls.note(KEYS[11], long)
    calls.note(KEYS[12], plan=other)
    calls.note(KEYS[13])
    keys = [*KEYS[:10], "large", *KEYS[10:14]]
    assert calls.kinds(keys) == ["ok"] * 15
    assert calls.ran() == keys


def test_a_killed_slot_loses_nothing(calls: Ahead) -> None:
    for key in KEYS[:3]:
        calls.note(key)
    calls.note("runs", STALL.format(60))
    for key in KEYS[3:]:
        calls.note(key)
    calls.wait_ran("runs")
    time.sleep(0.2)
    pid = calls.harness.wait_running("runs")
    os.kill(calls.harness.slot_pids()[0], signal.SIGKILL)
    found = calls.harness.wait("runs", *KEYS)
    assert found[0].kind == "host"
    assert {one.kind for one in found[1:4]} == {"ok"}, "reported before"
    assert {one.kind for one in found[4:]} == {"returned"}
    wait_until(lambda: not alive(pid))
    assert calls.ran() == [*KEYS[:3], "runs"]


def test_a_killed_keeper_ends_a_slot_that_does_nothing_but_calls(calls: Ahead) -> None:
    pid = calls.worker()
    (slot,) = calls.harness.slot_pids()
    for key in KEYS:
        calls.give(key, STALL.format(0.002))
        calls.give(key + "-ahead", STALL.format(0.002))
    os.kill(calls.harness.slots._keeper_pid, signal.SIGKILL)
    wait_until(lambda: not alive(slot), 1)
    wait_until(lambda: not alive(pid))
    wait_until(lambda: calls.read() or not calls.harness.slots._where)
    assert calls.worker() != pid


def test_a_worker_that_takes_no_call_is_replaced(calls: Ahead) -> None:
    pid = calls.worker()
    os.kill(pid, signal.SIGSTOP)
    calls.note("limited", limit_seconds=0.3)
    assert calls.kinds(["limited"]) == ["ok"]
    assert calls.worker() != pid
    assert calls.ran() == ["limited"]


def test_rubbish_is_no_harm_to_those_behind(calls: Ahead) -> None:
    calls.give("first", STALL.format(0.1))
    for number, key in enumerate(KEYS):
        bad = "answer = b''; line.sendall(b'\\0\\0\\0\\2v?'); import time; time.sleep(60)"
        calls.note(key, bad if number == 5 else "")
    found = calls.harness.wait(*KEYS)
    wrong = [(one.key, one.message) for one in found if one.kind != "ok"]
    assert wrong == [("k5", "its worker sent an answer that covey cannot read")]
    assert calls.ran() == KEYS


def test_what_a_worker_says_too_much_is_nobodys(calls: Ahead) -> None:
    pid = calls.worker()
    calls.give("first", STALL.format(0.1))
    for key in KEYS:
        calls.give(key, f"answer = b'v{key}'; say(answer); say(answer)")
    assert [value(one) for one in calls.harness.wait(*KEYS)] == [key.encode() for key in KEYS]
    assert calls.worker() != pid


def test_each_call_has_what_it_printed_itself(calls: Ahead) -> None:
    calls.give("first", "import sys\n" + STALL.format(0.1))
    for number, key in enumerate(KEYS):
        code = f"print('{key}'); print('bad {key}', file=sys.stderr)" if number % 3 == 0 else ""
        calls.note(key, code)
    for number, outcome in enumerate(calls.harness.wait(*KEYS)):
        said = f"{outcome.key}\n".encode() if number % 3 == 0 else b""
        assert (outcome.stdout, outcome.stderr) == (said, said and b"bad " + said)


def test_times_are_those_of_each_call(calls: Ahead) -> None:
    busy = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    for key, code in (("a", "pass"), ("b", busy), ("c", STALL.format(0.2)), ("d", "pass")):
        calls.give(key, code)
    short, worked, slept, last = calls.harness.wait("a", "b", "c", "d")
    assert worked.cpu_seconds >= 0.19
    assert worked.wall_seconds >= 0.19
    assert slept.wall_seconds >= 0.19
    assert slept.cpu_seconds < 0.1
    assert short.cpu_seconds < 0.1
    assert last.cpu_seconds < 0.1
    assert last.wall_seconds < 0.4, "without the time of those before it"
    assert short.started <= slept.started <= last.started


def test_files_are_taken_before_the_next_call(calls: Ahead) -> None:
    code = "open('same', 'w').write('{0}'); answer = b'fsame'"
    for key in KEYS[:10]:
        calls.give(key, code.format(key))
    for outcome in calls.harness.wait(*KEYS[:10]):
        path = Path(outcome.files[0].moved_to)
        assert path.read_text() == outcome.key
        path.unlink()


def test_tags_come_though_calls_follow_one_another(calls: Ahead) -> None:
    for number, key in enumerate(KEYS):
        code = f"import os; open(os.environ['COVEY_TAGS'], 'w').write('a{number} = 1\\n')"
        calls.give(key, code)
    said = "".join(outcome.tags for outcome in calls.harness.wait(*KEYS))
    assert said == "".join(f"a{number} = 1\n" for number in range(30))


# The real worker


class Real:
    def __init__(self, harness: Harness, folder: Path) -> None:
        self.harness = harness
        path = folder / NAME
        path.write_bytes(program())
        argv = ["sh", str(path), sys.executable]
        self.plan = harness.plan(ENV, calls=argv, ahead=True)

    def give(self, key: str, function: Callable[..., Any], *args: Any) -> None:
        call = packed(function, *args)
        assert self.harness.slots.offer(Order(key, self.plan, [], call=call))

    def do(self, *functions: Callable[[], Any]) -> list[Outcome]:
        keys = [f"do-{len(self.harness.found)}-{number}" for number in range(len(functions))]
        for key, function in zip(keys, functions, strict=True):
            self.give(key, function)
        return self.harness.wait(*keys)


def packed(function: Callable[..., Any], *args: Any) -> str:
    call = Packer().call(function, args, {})
    assert isinstance(call, Small)
    return call.text


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Real]:
    harness = Harness(tmp_path / "slots", 1, grace_seconds=0.3)
    made = Real(harness, tmp_path)
    assert made.do(nothing)[0].kind == "ok"
    yield made
    harness.close()


def test_the_worker_does_calls_that_wait_in_its_queue(real: Real) -> None:
    def stalls() -> None:
        time.sleep(0.1)

    found = real.do(stalls, *[os.getpid] * 100)
    pids = {unpacked(value(outcome)) for outcome in found[1:]}
    assert len(pids) == 1


def test_whatever_a_function_does_to_its_streams(real: Real) -> None:
    def prints() -> None:
        print("out")
        print("err", file=sys.stderr)

    def writes() -> None:
        os.write(1, b"raw\n")

    def replaces() -> None:
        import io

        sys.stdout = io.StringIO()
        print("nowhere")
        os.system("echo child")

    def restores() -> None:
        sys.stdout = sys.__stdout__

    def closes() -> None:
        os.close(1)
        os.open(os.devnull, os.O_WRONLY)
        os.write(1, b"nowhere")
        os.write(2, b"somewhere")

    def truncates() -> None:
        import fcntl

        fcntl.fcntl(2, fcntl.F_SETFL, 0)
        os.write(2, b"flags")

    functions: list[Callable[[], Any]]
    functions = [prints, nothing, writes, replaces, nothing, restores, prints, closes, nothing]
    found = real.do(*functions, truncates, nothing, truncates)
    said = [(one.stdout, one.stderr) for one in found]
    assert said == [
        (b"out\n", b"err\n"), (b"", b""), (b"raw\n", b""), (b"child\n", b""), (b"", b""),
        (b"", b""), (b"out\n", b"err\n"), (b"", b"somewhere"), (b"", b""), (b"", b"flags"),
        (b"", b""), (b"", b"flags"),
    ]  # fmt: skip


def test_large_values_and_errors_among_others(real: Real) -> None:
    def large() -> bytes:
        return bytes(100_000)

    def fails() -> None:
        raise KeyError("no")

    found = real.do(nothing, large, nothing, fails, large, nothing)
    assert [one.kind for one in found] == ["ok", "ok", "ok", "failed", "ok", "ok"]
    for outcome in (found[1], found[4]):
        path = Path(outcome.files[0].moved_to)
        assert unpacked(path.read_bytes()) == bytes(100_000)
        path.unlink()
    assert exception(value(found[3], "error"))[0] == "KeyError: 'no'"


def test_a_call_that_no_packet_holds_among_others(real: Real) -> None:
    data = bytes(range(256)) * 1000

    for number in range(20):
        if number % 5 == 4:
            real.give(f"g{number}", len, data)
        else:
            real.give(f"g{number}", int, number)
    found = real.harness.wait(*(f"g{number}" for number in range(20)))
    wanted = [256_000 if number % 5 == 4 else number for number in range(20)]
    assert [unpacked(value(one)) for one in found] == wanted


def test_a_function_that_forks_and_returns_twice(real: Real) -> None:
    def forks() -> int:
        return os.fork()

    found = real.do(forks, *[os.getpid] * 50)
    assert [one.kind for one in found] == ["ok"] * 51
    assert len({unpacked(value(one)) for one in found[1:]}) == 1
    assert unpacked(value(found[0])) > 0


def test_the_worker_ends_with_its_slot_and_does_nothing_more(real: Real, tmp_path: Path) -> None:
    path = tmp_path / "ran"

    def notes(key: str) -> None:
        with path.open("a") as file:
            file.write(f"{key} {os.getpid()}\n")
        time.sleep(60 if key == "first" else 0)

    real.give("first", notes, "first")
    for key in KEYS:
        real.give(key, notes, key)
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    os.kill(real.harness.slot_pids()[0], signal.SIGKILL)
    assert {outcome.kind for outcome in real.harness.wait(*KEYS)} == {"returned"}
    wait_gone(int(path.read_text().split()[1]))
    assert path.read_text().split()[::2] == ["first"]


ARGV = {
    "a pilot that offers no queue": ["env", "-u", "COVEY_CALLS_AHEAD", "sh"],
    "output that cannot be measured": ["sh", "-c", 'sh "$0" "$@" | cat'],
}


@pytest.mark.parametrize("argv", ARGV.values(), ids=ARGV)
def test_a_worker_that_cannot_use_a_queue_gets_calls_one_by_one(
    tmp_path: Path, argv: list[str]
) -> None:
    harness = Harness(tmp_path / "slots", 1)
    path = tmp_path / NAME
    path.write_bytes(program())
    plan = harness.plan(ENV, calls=[*argv, str(path), sys.executable], ahead=True)
    for key in KEYS[:5]:
        harness.slots.offer(Order(key, plan, [], call=packed(os.getpid)))
    assert len({unpacked(value(one)) for one in harness.wait(*KEYS[:5])}) == 1
    harness.close()
