"""Plans: what many orders share, the files that tasks get and return, and what they tell."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.files import task_reports
from covey.pilot.slots import slot
from covey.pilot.slots.orders import Link, Order, Plan
from tests.integration.slots_harness import ENV, Harness, alive, wait_until


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "slots", count=1, grace_seconds=0.5)
    yield harness
    harness.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(b"precious\n")
    path.chmod(0o444)
    return path


# Plans


def test_orders_share_the_environment_of_their_plan(slots: Harness) -> None:
    one = slots.plan(dict(ENV, A="1", B="1"))
    two = slots.plan(dict(ENV, A="2"))
    for number, plan in enumerate([one, two, one]):
        slots.sh(f"k{number}", "echo $A$B$C", plan=plan, env={"C": str(number)})
        slots.wait(f"k{number}")
    assert [found.stdout for found in slots.wait("k0", "k1", "k2")] == [b"110\n", b"21\n", b"112\n"]


def test_a_replaced_slot_is_told_again(slots: Harness) -> None:
    plan = slots.plan(dict(ENV, A="still"))
    assert slots.run("echo $A", plan=plan).stdout == b"still\n"
    for pid in (slots.slot_pids()[0], slots.slots._keeper_pid):
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: slots.slots.read() == [] and not alive(pid))  # type: ignore[misc]
        wait_until(lambda: slots.slots.read() == [] and 0 not in slots.slot_pids())
        assert slots.run("echo $A", plan=plan).stdout == b"still\n"


def test_a_plan_is_forgotten_once_no_order_uses_it(slots: Harness) -> None:
    plan = slots.plan(dict(ENV, A="known"))
    slots.sh("running", "sleep 0.3; echo $A", plan=plan)
    slots.sh("waiting", "echo $A", plan=plan)
    slots.slots.forget(plan)
    assert plan in slots.slots._plans
    assert [found.stdout for found in slots.wait("running", "waiting")] == [b"known\n"] * 2
    slots.run("true")
    assert plan not in slots.slots._plans
    assert slots.slots._seats[0].plans == {0}
    with pytest.raises(ValueError, match="unknown plan"):
        slots.slots.offer(Order("late", plan, ["true"]))
    slots.slots.forget(plan)  # twice is fine
    with pytest.raises(ValueError, match="known already"):
        slots.slots.plan(Plan(0, {}))


def test_accepted_codes(slots: Harness) -> None:
    plan = slots.plan(ok_codes=[0, 3])
    assert slots.run("exit 3", plan=plan)[1:3] == ("ok", 3)
    assert slots.run("exit 0", plan=plan).kind == "ok"
    odd = slots.run("exit 4", plan=plan)
    assert (odd.kind, odd.message) == ("failed", "exit code 4")
    assert slots.run("exit 0", plan=slots.plan(ok_codes=[3])).message == "exit code 0"


# Inputs


def test_inputs_are_linked_or_copied(slots: Harness, data: Path) -> None:
    plan = slots.plan(links=[Link(str(data), "in/a/data"), Link(str(data), "own", copy=True)])
    for key in ("one", "two"):  # the second finds them anew
        slots.sh(
            key,
            "stat -c %i in/a/data; echo more >> own; cat own other; rm -rf in",
            plan=plan,
            links=[Link(str(data), "other")],
        )
        (found,) = slots.wait(key)
        inode, *text = found.stdout.split()
        assert (int(inode), text) == (data.stat().st_ino, [b"precious", b"more", b"precious"])
    assert data.read_bytes() == b"precious\n"
    assert slots.run("ls -A").stdout == b""


def test_an_input_of_the_order_comes_before_the_plan(slots: Harness, data: Path) -> None:
    other = data.with_name("other")
    other.write_text("other\n")
    plan = slots.plan(links=[Link(str(data), "x")])
    assert slots.run("cat x", plan=plan, links=[Link(str(other), "x")]).stdout == b"other\n"
    assert data.read_bytes() == b"precious\n"


def test_inputs_are_copied_across_file_systems(tmp_path: Path, data: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(disk)], check=True)
    try:
        harness = Harness(disk / "slots", count=1)
        program = tmp_path / "tool"
        program.write_text("#!/bin/sh\ncat data\n")
        program.chmod(0o555)
        plan = harness.plan(links=[Link(str(data), "data"), Link(str(program), "tool")])
        harness.offer("tool", ["./tool"], plan)
        assert harness.wait("tool")[0].stdout == b"precious\n"
        harness.close()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", ""])
def test_an_input_may_not_leave_the_directory(slots: Harness, data: Path, path: str) -> None:
    found = slots.run("true", links=[Link(str(data), path)])
    assert (found.kind, found.exit_code) == ("failed", 126)
    assert "is not a path below the task's directory" in found.message
    assert slots.run("ls -A").stdout == b""


def test_inputs_that_cannot_both_be(slots: Harness, data: Path) -> None:
    for paths in (["a", "a/b"], ["a/b", "a"]):
        found = slots.run("true", links=[Link(str(data), path) for path in paths])
        assert found.kind == "failed"
        assert "two inputs have the path" in found.message


def test_a_vanished_input_is_the_fault_of_the_host(slots: Harness, data: Path) -> None:
    links = [Link(str(data), "here"), Link(f"{data}-gone", "a/data")]
    found = slots.run("true", links=links)
    assert (found.kind, found.started) == ("host", 0.0)
    assert "cannot place the input a/data" in found.message
    assert slots.run("ls -A").stdout == b""


def test_a_task_is_cancelled_while_its_inputs_are_copied(slots: Harness, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(40 << 30)
    slots.run("true")
    slots.sh("copying", "true", links=[Link(str(large), "copy", copy=True)])
    copy = slots.directory / "slot-0" / "copy"
    wait_until(copy.exists)
    slots.slots.cancel("copying")
    (found,) = slots.wait("copying", seconds=5)
    assert (found.kind, found.started) == ("returned", 0.0)
    assert slots.run("ls -A").stdout == b""


# Results and tags


def test_a_result_is_a_json_object(slots: Harness) -> None:
    found = slots.run('echo \'{ "a": 1.50, "b": ["é", null] }\' > $COVEY_RESULT; echo \'{"c": 2}\'')
    assert found.result == '{"a":1.5,"b":["é",null]}'
    assert slots.run("true").result == ""
    moved = slots.run("echo '{\"a\": 2}' > tmp; mv tmp $COVEY_RESULT")
    assert moved.result == '{"a":2}'
    assert slots.run("rm $COVEY_RESULT").kind == "ok"
    assert (
        slots.run("[ -f $COVEY_RESULT ] && echo '{\"a\": 3}' >> $COVEY_RESULT").result == '{"a":3}'
    )


def test_a_result_may_be_printed_last(slots: Harness) -> None:
    assert slots.run("echo x; echo '{\"a\": 1}'; echo").result == '{"a":1}'
    assert slots.run("echo '{\"a\": 1}'; echo x").result == ""
    assert slots.run("echo '{a}'").message == ""
    assert slots.run("echo '{\"a\": 1}'; exit 4").result == '{"a":1}'
    short = slots.plan(log_bytes=10)
    cut = slots.run(f"seq 1000; echo '{json.dumps({'a': 'b' * 100})}'", plan=short)
    assert (cut.result, len(cut.stdout) < 100) == ('{"a":"' + "b" * 100 + '"}', True)


def test_what_is_no_number_in_json(slots: Harness) -> None:
    found = slots.run('echo \'{"a": NaN, "b": [Infinity, -Infinity, 1e999]}\' > $COVEY_RESULT')
    assert found.result == '{"a":null,"b":["Infinity","-Infinity","Infinity"]}'


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo '{' > $COVEY_RESULT", "Expecting"),
        ("echo '[1]' > $COVEY_RESULT", "not an object"),
        ("head -c 70000 /dev/zero > $COVEY_RESULT", "longer than 65536 bytes"),
        (r"printf '\377' > $COVEY_RESULT", "not UTF-8"),
        ("head -c 60000 /dev/zero | tr '\\0' '[' > $COVEY_RESULT", "nested too deeply"),
    ],
)
def test_a_wrong_result_is_remarked(slots: Harness, script: str, words: str) -> None:
    found = slots.run(script + "; echo '{\"b\": 1}'")
    assert (found.kind, found.result) == ("ok", '{"b":1}')
    assert "$COVEY_RESULT was ignored" in found.message
    assert words in found.message


@pytest.mark.parametrize("harm", ["ln -sf /etc/passwd", "mkfifo", "mkdir", "ln -s /nowhere"])
def test_odd_things_in_the_place_of_a_result(slots: Harness, harm: str) -> None:
    found = slots.run(f"rm $COVEY_RESULT; {harm} $COVEY_RESULT")
    assert (found.kind, found.result) == ("ok", "")
    assert slots.run("echo '{\"a\": 3}' >> $COVEY_RESULT").result == '{"a":3}'


def test_a_result_that_was_moved_away_is_the_tasks(slots: Harness, tmp_path: Path) -> None:
    write = "echo '{\"a\": 3}' > $COVEY_RESULT"
    for round in range(3):
        moved = tmp_path / f"moved-{round}"
        assert slots.run(f"{write}; mv $COVEY_RESULT {moved}").kind == "ok"
        assert slots.run(write).result == '{"a":3}'
        assert moved.read_text() == '{"a": 3}\n'


@pytest.mark.parametrize("settled", [False, True])
def test_every_task_finds_a_pipe_for_tags_an_empty_result_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    if settled:
        monkeypatch.setattr(task_reports, "CLOCK_SECONDS", 0.0)
    harness = Harness(tmp_path / "slots", count=1)
    for _ in range(2):
        harness.run("sleep 0.05")
        harness.run(
            "cd $(dirname $COVEY_RESULT); rm tags; mkdir -p junk/x; mv result junk; touch tags"
        )
        harness.run("mv $(dirname $COVEY_RESULT) ./away; ln -s away $(dirname $COVEY_RESULT)")
        found = harness.run("cd $(dirname $COVEY_RESULT); stat -c '%n %s %F' *; echo x=1 > tags")
        assert found.stdout == b"result 0 regular empty file\ntags 0 fifo\n"
        assert found.tags == "x=1\n"
    harness.close()


def test_tags(slots: Harness) -> None:
    found = slots.run("echo a=1 > $COVEY_TAGS; echo b=é >> $COVEY_TAGS")
    assert found.tags == "a=1\nb=é\n"
    assert slots.run("true").tags == ""
    assert slots.run("rm -f $COVEY_RESULT $COVEY_TAGS").kind == "ok"
    assert slots.run("[ -p $COVEY_TAGS ] && echo c=1 > $COVEY_TAGS").tags == "c=1\n"


def test_many_tags_hold_nobody_up(slots: Harness) -> None:
    found = slots.run("seq 1000000 | sed s/^/a=/ > $COVEY_TAGS", limit_seconds=20)
    assert found.kind == "ok"
    assert found.tags.startswith("a=1\na=2\n")
    assert found.tags.endswith("\n!dropped")
    assert 16000 < len(found.tags) <= 16384 + len("!dropped")


# Outputs


def test_small_outputs_come_along(slots: Harness) -> None:
    plan = slots.plan(outputs=["out", "logs/**/*.txt"], optional_outputs=["maybe*", "none"])
    found = slots.run(
        "echo 1 > out; mkdir -p logs/a/b; echo 2 > logs/x.txt; echo 3 > logs/a/b/y.txt;"
        "echo 4 > maybe1; chmod 700 maybe1; echo no > other; : > logs/a/z",
        plan=plan,
    )
    assert found.kind == "ok"
    assert [(file.path, file.data, file.size) for file in found.files] == [
        ("logs/a/b/y.txt", b"3\n", 2),
        ("logs/x.txt", b"2\n", 2),
        ("maybe1", b"4\n", 2),
        ("out", b"1\n", 2),
    ]
    assert [file.path for file in found.files if file.executable] == ["maybe1"]
    assert not (slots.directory / "outbox").exists()


def test_large_outputs_wait_in_the_outbox(slots: Harness) -> None:
    plan = slots.plan(outputs=["*"])
    script = (
        "for i in a b c d e; do head -c 16384 /dev/zero > $i; done; head -c 20000 /dev/zero > x"
    )
    slots.sh("7.1", script, plan=plan)
    (found,) = slots.wait("7.1")
    assert [file.path for file in found.files if file.data] == ["a", "b", "c", "d"]
    moved = [file for file in found.files if file.moved_to]
    assert [(file.path, file.size) for file in moved] == [("e", 16384), ("x", 20000)]
    assert [Path(file.moved_to).name for file in moved] == ["7.1-4", "7.1-5"]
    for file in moved:
        assert Path(file.moved_to).read_bytes() == bytes(file.size)
    os.unlink(moved[0].moved_to)
    # The other one is still there when the slots are closed, and goes with them.


def test_an_outbox_survives_a_killed_slot_but_not_what_nobody_knows_of(slots: Harness) -> None:
    plan = slots.plan(outputs=["x"])
    slots.sh("1", "head -c 20000 /dev/zero > x", plan=plan)
    kept = Path(slots.wait("1")[0].files[0].moved_to)
    slots.sh("2", "sleep 600", plan=plan)
    slots.wait_running("2")
    (kept.parent / "2-0").touch()  # as if the slot had died while it told of it
    os.kill(slots.slot_pids()[0], signal.SIGKILL)
    assert slots.wait("2")[0].kind == "host"
    assert [path.name for path in kept.parent.iterdir()] == ["1-0"]


def test_a_directory_means_everything_in_it(slots: Harness) -> None:
    plan = slots.plan(outputs=["results"])
    found = slots.run("mkdir -p results/.a; echo 1 > results/.a/b; echo 2 > results/c", plan=plan)
    assert [file.path for file in found.files] == ["results/.a/b", "results/c"]


def test_outputs_of_the_order(slots: Harness) -> None:
    plan = slots.plan(outputs=["a"])
    found = slots.run("echo 1 > a; echo 2 > b-7", plan=plan, outputs=["b-[7]"])
    assert [file.path for file in found.files] == ["a", "b-7"]
    found = slots.run("echo > a; echo it ran", plan=plan, outputs=["../b"])
    assert (found.kind, found.stdout) == ("failed", b"")
    assert "the output pattern '../b' leads out of the task's directory" in found.message


def test_a_missing_output(slots: Harness, data: Path) -> None:
    plan = slots.plan(
        outputs=["out/*.csv"], optional_outputs=["*.log"], links=[Link(str(data), "i")]
    )
    found = slots.run("mkdir out; echo 1 > out/a.txt; echo why > my.log", plan=plan)
    assert (found.kind, found.exit_code) == ("output", 0)
    assert found.message == "no output matches 'out/*.csv' (there is my.log, out/a.txt)"
    assert [file.path for file in found.files] == ["my.log"]
    many = slots.run("touch 1 2 3 4 5 6 7", plan=plan)
    assert many.message.endswith("(there is 1, 2, 3, 4, 5, …)")
    assert slots.run("true", plan=plan).message.endswith("(there is no file)")


def test_a_failed_task_returns_what_is_optional(slots: Harness) -> None:
    plan = slots.plan(outputs=["out"], optional_outputs=["*.log"])
    found = slots.run("echo 1 > out; echo why > my.log; exit 3", plan=plan)
    assert (found.kind, found.message) == ("failed", "exit code 3")
    assert [file.path for file in found.files] == ["my.log"]


def test_too_much_output(slots: Harness) -> None:
    plan = slots.plan(outputs=["*"], output_bytes=1 << 20)
    found = slots.run("head -c 2000000 /dev/zero > x", plan=plan)
    assert (found.kind, found.files) == ("output", [])
    assert "1.9 MB, more than the 1 MB that a task may return" in found.message
    found = slots.run("seq 10001 | xargs touch", plan=plan)
    assert (found.kind, found.files) == ("output", [])
    assert found.message == "more than 10000 files match '*'"


def test_links_lead_nowhere_else(slots: Harness, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    plan = slots.plan(optional_outputs=["*", "d/key", "e", "far"])
    found = slots.run(
        f"ln -s {secret}/key far; ln -s {secret} d; mkdir e; ln -s ../{secret}/key e/f;"
        "echo 1 > real; ln -s real near",
        plan=plan,
    )
    assert [(file.path, file.data) for file in found.files] == [("near", b"1\n"), ("real", b"1\n")]


def test_inputs_are_no_outputs_unless_named_or_changed(slots: Harness, data: Path) -> None:
    links = [Link(str(data), "a"), Link(str(data), "b", True), Link(str(data), "c", True)]
    plan = slots.plan(optional_outputs=["*"], links=links)
    found = slots.run("echo more >> c; echo new > d", plan=plan)
    assert [(file.path, file.data) for file in found.files] == [
        ("c", b"precious\nmore\n"),
        ("d", b"new\n"),
    ]
    named = slots.plan(outputs=["a"], links=links)
    assert slots.run("true", plan=named).files[0].data == b"precious\n"


def test_outputs_elsewhere_are_copied(slots: Harness, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    plan = slots.plan(chdir=str(there), outputs=["small", "large"])
    found = slots.run("echo 1 > small; head -c 20000 /dev/zero > large", plan=plan)
    assert [file.path for file in found.files] == ["large", "small"]
    assert sorted(path.name for path in there.iterdir()) == ["large", "small"]


def test_an_unreadable_output_is_returned_all_the_same(slots: Harness) -> None:
    plan = slots.plan(outputs=["x", "y"])
    found = slots.run("echo 1 > x; head -c 20000 /dev/zero > y; chmod 0 x y", plan=plan)
    assert [file.size for file in found.files] == [2, 20000]


def test_a_wrong_pattern_is_refused(slots: Harness) -> None:
    found = slots.run("true", plan=slots.plan(outputs=["../x"]))
    assert (found.kind, found.exit_code) == ("failed", 126)
    assert "leads out of the task's directory" in found.message


# The check


def test_a_check_decides(slots: Harness) -> None:
    plan = slots.plan(
        dict(ENV, WORD="good"), outputs=["out"], check="grep -q $WORD$N out || exit 9"
    )
    good = slots.run("echo good1 > out; echo printed", plan=plan, env={"N": "1"})
    assert (good.kind, good.message, good.stdout) == ("ok", "", b"printed\n")
    assert good.files[0].data == b"good1\n"
    bad = slots.run("echo bad > out", plan=plan)
    assert (bad.kind, bad.exit_code, bad.files) == ("output", 0, [])
    assert bad.message == "the check failed: exit code 9"


def test_a_check_says_why(slots: Harness, tmp_path: Path) -> None:
    plan = slots.plan(check="pwd; echo 'no header' >&2; false", chdir=str(tmp_path))
    found = slots.run("echo mine", plan=plan)
    assert found.message == f"the check failed: exit code 1: {tmp_path}\nno header"
    assert (found.stdout, found.stderr) == (b"mine\n", b"")
    long = slots.run("true", plan=slots.plan(check="seq 1000; exit 1"))
    assert len(long.message) < 600
    assert long.message.endswith("999\n1000")


def test_a_check_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot, "_CHECK_SECONDS", 0.3)
    harness = Harness(tmp_path / "slots", count=1, grace_seconds=0.2)
    found = harness.run("true", plan=harness.plan(check="sleep 600"))
    assert (found.kind, found.message) == ("output", "the check failed: over its limit of 0.3 s")
    assert found.wall_seconds < 0.3
    harness.close()


def test_a_task_is_cancelled_in_its_check(slots: Harness, tmp_path: Path) -> None:
    mark = tmp_path / "checking"
    slots.sh("checked", "true", plan=slots.plan(check=f"touch {mark}; sleep 600"))
    wait_until(mark.exists)
    slots.slots.cancel("checked")
    assert slots.wait("checked")[0].kind == "cancelled"


def test_no_check_of_a_failed_task(slots: Harness, tmp_path: Path) -> None:
    plan = slots.plan(check=f"touch {tmp_path}/checked")
    assert slots.run("exit 1", plan=plan).kind == "failed"
    assert not (tmp_path / "checked").exists()


# Many at once


def test_many_tasks_with_files(tmp_path: Path, data: Path) -> None:
    harness = Harness(tmp_path / "slots", count=2)
    plan = harness.plan(links=[Link(str(data), "data")], outputs=["out"])
    offered = 0
    until = time.monotonic() + 30
    while len(harness.found) < 300:
        assert time.monotonic() < until
        while offered < 300 and harness.slots.free():
            harness.offer(f"t{offered}", ["cp", "data", "out"], plan)
            offered += 1
        harness.note(harness.slots.read(1))
    assert {found.files[0].data for found in harness.found.values()} == {b"precious\n"}
    harness.close()
