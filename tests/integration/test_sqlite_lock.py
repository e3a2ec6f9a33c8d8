"""The lock beside the record: one holder, known by name, gone when it dies."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from covey.core.errors import StoreFailed, StoreHeld
from covey.store.lock import NAME, Holder, Lock, holder

HOLD = """
import sys, time
from pathlib import Path
from covey.store.lock import Lock
lock = Lock(Path(sys.argv[1]), command="covey serve")
lock.announce("http://127.0.0.1:4711")
print("held", flush=True)
time.sleep(600)
"""


def test_one_holder(tmp_path: Path) -> None:
    with Lock(tmp_path, command="covey serve") as lock:
        assert holder(tmp_path) == lock.holder
        with pytest.raises(StoreHeld, match=rf"process {lock.holder.pid} on .*covey serve"):
            Lock(tmp_path)
        lock.announce("http://127.0.0.1:4711")
        told = holder(tmp_path)
        assert told is not None
        assert told.address == "http://127.0.0.1:4711"
        with pytest.raises(StoreHeld, match="4711"):
            Lock(tmp_path)
    assert holder(tmp_path) is None
    Lock(tmp_path).release()


def test_a_shorter_word_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    with Lock(tmp_path) as lock:
        lock.announce("http://a.long.name.example.org:4711")
        lock.announce("http://x")
        assert holder(tmp_path) == lock.holder


def test_nobody_holds_what_is_not_there(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    assert holder(tmp_path / "none") is None
    with pytest.raises(StoreFailed):
        Lock(tmp_path / "none")


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        told = holder(tmp_path)
        assert told is not None
        assert (told.pid, told.command) == (process.pid, "covey serve")
        with pytest.raises(StoreHeld, match=str(process.pid)):
            Lock(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert str(process.pid) in (tmp_path / NAME).read_text(), "what it said is still there"
    assert holder(tmp_path) is None
    with Lock(tmp_path) as lock:
        assert holder(tmp_path) == lock.holder


@pytest.mark.parametrize("content", ["", "{", '{"pid": "x"}', "\0" * 100])
def test_nonsense_in_the_file_is_no_obstacle(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    assert holder(tmp_path) is None
    with Lock(tmp_path) as lock:
        (tmp_path / NAME).write_text(content)
        told = holder(tmp_path)
        assert told == Holder(pid=0, host="", since=0.0)
        with pytest.raises(StoreHeld, match="another process"):
            Lock(tmp_path)
        lock.announce("http://x")
        assert holder(tmp_path) == lock.holder
