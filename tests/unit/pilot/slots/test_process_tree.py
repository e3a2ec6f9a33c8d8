"""Families of processes are found and ended whole."""

import os
import signal
import subprocess

import pytest

from covey.pilot.slots import process_tree


def sleeper(depth: int) -> "subprocess.Popen[bytes]":
    script = "exec sleep 600" if depth == 1 else "sh -c 'sleep 600 & echo; wait' & wait"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
    if depth > 1:
        assert process.stdout is not None
        process.stdout.readline()
    return process


@pytest.mark.parametrize("by_file", [True, False])
def test_family_is_everyone_parents_first(monkeypatch: pytest.MonkeyPatch, by_file: bool) -> None:
    monkeypatch.setattr(process_tree, "_HAS_CHILDREN_FILE", by_file)
    process = sleeper(2)
    try:
        found = process_tree.family([process.pid])
        assert len(found) == 3
        assert found[0] == process.pid
        assert [process_tree.parent_of(pid) for pid in found[1:]] == found[:2]
        assert process.pid in process_tree.children(os.getpid())
    finally:
        for pid in process_tree.family([process.pid]):
            process_tree.send(pid, signal.SIGKILL)
        process.communicate()


def test_nobody_has_no_family() -> None:
    assert process_tree.parent_of(2**22 + 1) is None
    assert process_tree.children(2**22 + 1) == []
    process_tree.send(2**22 + 1, signal.SIGTERM)


def test_kill_children_keeps_those_it_is_told_to() -> None:
    kept = sleeper(1)
    others = set(process_tree.children(os.getpid())) - {kept.pid}
    victim = sleeper(1)
    usage = process_tree.Usage()
    process_tree.kill_children(keep=others | {kept.pid}, usage=usage)
    assert usage.memory_kb > 0
    assert process_tree.parent_of(victim.pid) is None
    assert kept.poll() is None
    kept.kill()
    kept.communicate()
    victim.communicate()


def test_whether_we_have_offspring() -> None:
    offspring = process_tree.Offspring()
    child = sleeper(1)
    assert not offspring.none()
    child.kill()
    assert not offspring.none()  # it is dead, but not reaped
    child.communicate()
    assert offspring.none() is not bool(process_tree.children(os.getpid()))  # of other tests
