"""Runs under any Python from 3.6 on: are the slots whole here? Prints "whole".

With the argument "degraded" it pretends to be a system without sigtimedwait,
subreapers and prctl, where only process groups are known.
"""

import base64
import os
import signal
import sys
import tempfile
import time
from typing import Any

from covey.pilot.slots import process_tree, slot_signals
from covey.pilot.slots.orders import Link, Order, Outcome, Plan
from covey.pilot.slots.slot_pool import Slots

ENV = {"PATH": "/usr/bin:/bin", "LANG": "C"}


def outcomes(slots: Slots, count: int) -> "dict[str, Outcome]":
    found: dict[str, Outcome] = {}  # not evaluated in a function
    until = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < until, found
        for outcome in slots.read(0.2):
            assert outcome.key not in found
            found[outcome.key] = outcome
    return found


def offer(slots: Slots, key: str, script: str, limit: float = 0.0) -> None:
    assert slots.offer(Order(key, 1, ["sh", "-c", script], limit_seconds=limit))


def check_files(slots: Slots, folder: str) -> None:
    data = os.path.join(folder, "data")
    with open(data, "w") as file:
        file.write("data")
    links = [Link(data, "in/linked"), Link(data, "copied", True)]
    slots.plan(Plan(2, ENV, links=links, outputs=["o*"], check="[ -s out ] && [ -s other ]"))
    script = (
        "cat in/linked copied > out; head -c 30000 /dev/zero > other;"
        "echo '{\"a\": 1}' > $COVEY_RESULT; echo b=2 > $COVEY_TAGS"
    )
    assert slots.offer(Order("files", 2, ["sh", "-c", script]))
    found = outcomes(slots, 1)["files"]
    assert (found.kind, found.result, found.tags) == ("ok", '{"a":1}', "b=2\n"), found
    other, out = found.files
    assert (out.path, out.data, out.executable) == ("out", b"datadata", False)
    assert (other.path, other.size, os.path.getsize(other.moved_to)) == ("other", 30000, 30000)
    slots.forget(2)
    os.unlink(data)


def check_calls(slots: Slots) -> None:
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "calls_worker.py")
    slots.plan(Plan(3, ENV, calls=[sys.executable, worker]))
    calls = {
        "one": "import os, time; print('hello'); answer = b'v1 %d' % os.getpid()",
        "two": "import os; answer = b'v2 %d' % os.getpid()",
        "slow": "import time; time.sleep(60)",
        "gone": "import os; os._exit(4)",
    }
    found = {}
    for key in ("one", "two", "slow", "gone"):
        call = base64.b64encode(calls[key].encode()).decode()
        limit = 0.3 if key == "slow" else 0.0
        assert slots.offer(Order(key, 3, [], call=call, limit_seconds=limit))
        found.update(outcomes(slots, 1))
    kinds = [found[key].kind for key in ("one", "two", "slow", "gone")]
    assert kinds == ["ok", "ok", "timeout", "failed"], found
    assert (found["one"].stdout, found["two"].stdout) == (b"hello\n", b"")
    assert found["gone"].exit_code == 4
    slots.forget(3)


def check_limits(slots: Slots) -> None:
    eat = (
        "import time; x = [time.sleep(0.002) or b'x' * 1048576 for _ in range(400)]; time.sleep(9)"
    )
    assert slots.offer(Order("memory", 1, [sys.executable, "-c", eat], memory_mb=150))
    bound = "grep Cpus_allowed_list /proc/self/status | cut -f2"
    assert slots.offer(Order("bound", 1, ["sh", "-c", bound], cores=[0]))
    found = outcomes(slots, 2)
    assert found["memory"].kind == "memory", found["memory"]
    assert found["bound"].stdout == b"0\n", found["bound"]


def main() -> None:
    directory = os.path.join(tempfile.mkdtemp(), "slots")
    slots = Slots(directory, 2, grace_seconds=0.3)
    slots.start()
    slots.plan(Plan(1, ENV))
    offer(slots, "ok", "echo \u00e9 > file; cat file; ls /proc/self/fd | wc -l >&2; sleep 600 &")
    offer(slots, "failed", "exit 3")
    offer(slots, "timeout", "trap '' TERM; while :; do sleep 0.1; done", 0.2)
    assert slots.offer(Order("missing", 1, ["no-such-command"]))
    found = outcomes(slots, 4)
    assert found["ok"].kind == "ok", found
    assert found["ok"].stdout == b"\xc3\xa9\n"
    assert found["ok"].stderr.strip() == b"4"
    assert (found["failed"].kind, found["failed"].exit_code) == ("failed", 3)
    assert (found["timeout"].kind, found["timeout"].signal) == ("timeout", signal.SIGKILL)
    assert found["missing"].exit_code == 127
    offer(slots, "cancelled", "sleep 600")
    while not slots.running()["cancelled"]:
        time.sleep(0.01)
    slots.cancel("cancelled")
    assert outcomes(slots, 1)["cancelled"].kind == "cancelled"
    offer(slots, "orphan", "sleep 600")
    while not slots.running()["orphan"]:
        time.sleep(0.01)
    if "degraded" not in sys.argv:  # orphans are not found there
        for seat in slots._seats:
            os.kill(seat.pid, signal.SIGKILL)
        assert outcomes(slots, 1)["orphan"].kind == "host"
    check_files(slots, os.path.dirname(directory))
    check_calls(slots)
    check_limits(slots)
    count = 0
    for number in range(200):
        while not slots.free():
            count += sum(outcome.key.startswith("n") for outcome in slots.read(1))
        assert slots.offer(Order(f"n{number}", 1, ["/bin/true"]))
    while count < 200:
        count += sum(outcome.kind == "ok" for outcome in slots.read(1))
    slots.close()
    assert not os.path.exists(directory)
    os.rmdir(os.path.dirname(directory))
    print("whole")


def no_prctl(option: int, argument: Any) -> bool:
    return False


if __name__ == "__main__":
    if "degraded" in sys.argv:
        slot_signals.wait = slot_signals._wait_polling
        process_tree._prctl = no_prctl
    main()
