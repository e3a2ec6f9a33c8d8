"""What a host is called, and what tasks call it."""

from pathlib import Path

import pytest

from covey.pilot.host import host_facts
from covey.pilot.host.tags import LONGEST, MOST_TASK_TAGS, PERIOD_SECONDS, HostTags, Now, PilotFacts
from covey.pilot.protocol.messages import MOST_TAGS, Input, OutputFile

IDLE = Now(2, [], 0.0, 0.0)


def make(path: Path, until: float = 0.0) -> HostTags:
    fixed = PilotFacts("abc", "local", 2, 4000, ["0", "1"], str(path), str(path / "cache"), until)
    return HostTags(fixed, str(path / "cache" / "tags.json"))


def test_what_does_not_change_is_said_at_enrolment(tmp_path: Path) -> None:
    found = make(tmp_path).at_enrolment()
    for name in (
        "pilot_hash_name", "lrms_name", "arch", "os_name", "os_version", "cpu_model",
        "size_mem_mb", "size_disk_mb", "scratch_dir", "sw_dir", "queue_nodecount", "queue_access",
        "gpus", "cores", "python",
    ):  # fmt: skip
        assert name in found
    assert (found["gpus"], found["queue_nodecount"]) == ("0,1", "2")


def test_what_changes_is_said_when_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [1000]
    monkeypatch.setattr(host_facts, "free_memory_mb", lambda: free[0])
    monkeypatch.setattr(host_facts, "disk_mb", lambda _: (100, 50))
    monkeypatch.setattr(host_facts, "idle_percent", lambda: 100)
    tags = make(tmp_path, until=9e9)
    tags.at_enrolment()
    assert tags.due(100.0)
    first = tags.changed(100.0, Now(1, [], 0.05, 2e6))
    assert first is not None
    assert first["free_mem_mb"] == "1000"
    assert (first["queue_freenodecount"], first["pilot_lag"]) == ("1", "0.050")
    assert first["pilot_xfer_bw"] == "2000"
    assert int(first["queue_maxtime"]) > 1e9
    assert not tags.due(100.0 + PERIOD_SECONDS / 2)
    now = 100.0 + PERIOD_SECONDS
    assert tags.due(now)
    free[0] = 950
    tags.changed(now, Now(1, [], 0.05, 2e6))  # the processor's share appears now
    assert tags.changed(now + PERIOD_SECONDS, Now(1, [], 0.05, 2e6)) is None
    free[0] = 500
    found = tags.changed(now + 2 * PERIOD_SECONDS, Now(1, [], 0.05, 2e6))
    assert found is not None
    assert found["free_mem_mb"] == "500"


def test_tasks_publish_their_own_which_outlive_the_pilot(tmp_path: Path) -> None:
    tags = make(tmp_path)
    before = tags.at_enrolment()
    tags.changed(100.0, IDLE)
    tags.wrote("ana", "blas=openblas\nnot a tag\n1x=no\nspeed=3=4\n")
    assert not tags.due(100.1)
    assert tags.due(101.0)
    found = tags.changed(101.0, IDLE)
    assert found is not None
    assert (found["ana:blas"], found["ana:speed"]) == ("openblas", "3=4")
    assert set(before) <= set(found)
    assert "free_mem_mb" in found
    assert len([name for name in found if ":" in name]) == 2
    tags.wrote("bob", "blas=mkl\n")
    tags.close()
    other = make(tmp_path)
    assert other.at_enrolment()["ana:blas"] == "openblas"
    assert other.at_enrolment()["bob:blas"] == "mkl"
    tags.wrote("ana", "blas=\n")
    found = tags.changed(102.0, IDLE)
    assert found is not None
    assert "ana:blas" not in found
    assert "ana:blas" not in make(tmp_path).at_enrolment()


def test_they_are_bounded(tmp_path: Path) -> None:
    tags = make(tmp_path)
    tags.wrote("ana", "long=" + "x" * 5000)
    for number in range(MOST_TASK_TAGS):
        tags.wrote("ana", f"n{number}={number}")
    tags.close()
    found = make(tmp_path).at_enrolment()
    assert "ana:long" not in found
    assert len([name for name in found if ":" in name]) == MOST_TASK_TAGS
    tags.wrote("ana", "long=" + "x" * 5000)
    tags.close()
    assert len(make(tmp_path).at_enrolment()["ana:long"]) == LONGEST


def test_the_last_files(tmp_path: Path) -> None:
    tags = make(tmp_path)
    inputs = [Input("run.py", "ab" * 32), Input("far", url="http://x/y")]
    tags.ran(
        "ana", ["./run.py", "1"], inputs, [OutputFile("o", 1, "cd" * 32), OutputFile("small", 1)]
    )
    found = tags.changed(100.0, IDLE)
    assert found is not None
    assert found["ana:last_executable"] == "./run.py:" + "ab" * 32
    assert found["ana:last_input_files"] == "run.py:" + "ab" * 32 + " far"
    assert found["ana:last_output_files"] == "o:" + "cd" * 32 + " small"
    tags.wrote("ana", "blas=mkl")
    told = tags.changed(101.5, IDLE)
    assert told is not None
    assert told.items() >= {name: found[name] for name in found if ":last_" in name}.items()
    tags.ran("bob", ["true"], [], [])
    later = tags.changed(200.0, IDLE)
    assert later is not None
    last = {name for name in later if "last_" in name}
    assert last == {"bob:last_executable", "bob:last_input_files", "bob:last_output_files"}
    assert "ab" * 32 not in str(later), "it was another owner's"


def test_a_name_that_no_server_takes_is_ignored(tmp_path: Path) -> None:
    """It would keep this host's pilots out, and those that come after them."""
    tags = make(tmp_path)
    tags.wrote("ana", "x" * LONGEST + "=1\nfine=1\n")
    tags.close()
    assert [name for name in make(tmp_path).at_enrolment() if ":" in name] == ["ana:fine"]
    tags = make(tmp_path)
    tags.wrote("ana", "".join(f"n{number}=1\n" for number in range(MOST_TASK_TAGS)))
    tags.ran("ana", ["x"], [], [])
    published = tags.changed(100.0, IDLE)
    assert published is not None
    assert len(published) <= MOST_TAGS
