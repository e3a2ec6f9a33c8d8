"""Where our control group is, what a group's files say, and when a failure is one of memory."""

from pathlib import Path

import pytest

from covey.pilot.walls import resource_limits
from covey.pilot.walls.resource_limits import ControlGroup, Memory, Sampled, locate

V1 = """\
4:memory:/batch/job 7
3:cpu,cpuacct:/elsewhere
0::/
"""
MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def test_our_group_of_version_1_is_found() -> None:
    assert locate(V1, MOUNTS) == ("/sys/fs/cgroup/memory/batch/job 7", 1)


def test_our_group_of_version_2_is_found() -> None:
    assert locate("0::/user.slice/a", MOUNTS) == ("/sys/fs/cgroup/unified/user.slice/a", 2)
    assert locate("0::/", MOUNTS) == ("/sys/fs/cgroup/unified", 2)


def test_our_group_in_a_container() -> None:
    # Only the part of the tree below the container's own group is mounted there.
    mount = "41 31 0:38 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
    assert locate("0::/docker/ab/c", mount) == ("/sys/fs/cgroup/c", 2)
    assert locate("0::/docker/ab", mount) == ("/sys/fs/cgroup", 2)
    assert locate("0::/docker/abc", mount) is None


def test_no_group_at_all() -> None:
    assert locate("", "") is None
    assert locate(V1, "") is None


def fake_group(tmp_path: Path, version: int) -> ControlGroup:
    """Plain files stand for the kernel's: version 2 with memory is not to be had everywhere."""
    (tmp_path / "cgroup.procs").touch()
    path = tmp_path / "covey-1"
    group = ControlGroup(str(path), str(tmp_path), version)
    names = ["cgroup.procs", "memory.peak", "memory.max", "memory.events", "memory.swap.max"]
    if version == 1:
        names = ["cgroup.procs", "memory.max_usage_in_bytes", "memory.limit_in_bytes"]
        names += ["memory.oom_control", "memory.memsw.limit_in_bytes"]
    for name in names:
        (path / name).touch()
    group._kills = 2
    return group


def test_a_group_of_version_2(tmp_path: Path) -> None:
    group = fake_group(tmp_path, 2)
    path = tmp_path / "covey-1"
    (path / "memory.events").write_text("low 0\noom 4\noom_kill 2\n")
    group.begin(100)
    assert (path / "memory.max").read_text() == "104857600"
    assert (path / "memory.swap.max").read_text() == "0"
    assert (path / "cgroup.procs").read_text() == "0"
    group.spawned()
    assert (tmp_path / "cgroup.procs").read_text() == "0"
    assert not group.over()
    (path / "memory.events").write_text("low 0\noom 5\noom_kill 3\n")
    (path / "memory.peak").write_text("90000000\n")
    (path / "memory.stat").write_text("anon 1\nfile 50000000\nshmem 10000000\n")
    assert group.over()
    assert group.end() == (True, 50_000_000 // 1024)
    assert not group.over()  # the next one


def test_a_group_of_version_1(tmp_path: Path) -> None:
    group = fake_group(tmp_path, 1)
    path = tmp_path / "covey-1"
    (path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    group.begin(100)
    assert (path / "memory.limit_in_bytes").read_text() == "104857600"
    (path / "memory.max_usage_in_bytes").write_text("9000000\n")
    (path / "memory.stat").write_text("cache 1000000\nrss 5\nshmem 0\n")
    assert group.end() == (False, 8_000_000 // 1024)


def test_a_group_that_is_gone_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = fake_group(tmp_path, 1)
    monkeypatch.setattr(resource_limits, "make_group", lambda name: group)
    (tmp_path / "covey-1" / "memory.limit_in_bytes").unlink()
    memory = Memory("covey-1")
    memory.begin(5000)
    memory.spawned()
    assert isinstance(memory._way, Sampled)


@pytest.mark.parametrize(
    ("usage_mb", "failed", "stderr", "over"),
    [
        (95, True, b"", True),  # as near as it could get
        (95, False, b"", False),
        (50, True, b"Killed", False),
        (5, True, b"Traceback\nMemoryError\n", True),
        (5, True, b"MemoryError" + bytes(5000), False),  # long ago
        (5, False, b"MemoryError", False),
    ],
)
def test_a_failure_at_the_limit_is_one_of_memory(
    monkeypatch: pytest.MonkeyPatch, usage_mb: int, failed: bool, stderr: bytes, over: bool
) -> None:
    monkeypatch.setattr(resource_limits, "_max_rss_kb", lambda: 1000)
    monkeypatch.setattr(resource_limits, "_own_data_bytes", lambda: 0)
    memory = Memory("")
    memory.begin(100)
    memory.spawned()
    assert memory.end(usage_mb * 1024, failed, stderr) == (over, usage_mb * 1024)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (b"java.lang.OutOfMemoryError: Java heap space", True),
        (b"terminate called after throwing an instance of 'std::bad_alloc'", True),
        (b"Error: cannot allocate vector of size 7.5 Gb", True),
        (b"fork: Cannot allocate memory", True),
        (b"torch.cuda.OutOfMemoryError: CUDA out of memory.", False),
        (b"ValueError: memory", False),
    ],
)
def test_last_words_about_memory(words: bytes, refused: bool) -> None:
    assert resource_limits.was_refused(words) == refused


def test_our_own_size_is_not_blamed_on_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "_max_rss_kb", lambda: 200 * 1024)
    memory = Memory("")
    memory.begin(100)
    memory.spawned()
    # wait4 counts what we were before the program was executed.
    assert memory.end(200 * 1024, True, b"") == (False, 200 * 1024)


def test_a_slot_that_is_large_itself_is_not_choked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "_own_data_bytes", lambda: 1 << 30)
    memory = Memory("")
    memory.begin(10)
    assert memory._sampled._before is None
    memory.spawned()


def test_looks_become_rarer() -> None:
    memory = Memory("")
    pauses = [memory.pause() for _ in range(20)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.2, 1.0)


def test_ranges_of_processors() -> None:
    assert resource_limits._expand("0-2,5") == [0, 1, 2, 5]
    assert resource_limits.bound()
