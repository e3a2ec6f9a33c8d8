"""The real pilot with real slots: files in and out, setups, resources, tags, live output."""

import base64
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.protocol.messages import Body, Followed, Input, Need
from tests.integration.pilot_stand import Stand, pilot, standing
from tests.integration.test_slots_interpreters import pythons
from tests.unit.pilot.standin import digest_of


@pytest.fixture
def stand() -> Iterator[Stand]:
    with standing() as found:
        yield found


def shell(bag: int, script: str, **more: object) -> Body:
    return Body(bag, ["sh", "-c", script], ["n"], **more)  # type: ignore[arg-type]


def blob(stand: Stand, path: str, data: bytes, **more: object) -> Input:
    return Input(path, stand.add(data), len(data), **more)  # type: ignore[arg-type]


def test_plain_tasks(stand: Stand, tmp_path: Path) -> None:
    with pilot(stand, tmp_path, "--slots", "2"):
        ends = stand.wait(stand.give(shell(1, "echo {n} $COVEY_TASK $COVEY_CORES"), 50))
        assert [end.stdout for end in ends] == [f"{n} {n} 1\n" for n in range(50)]
        stand.send_home()
        stand.until(lambda: bool(stand.left))
    assert not (tmp_path / "work").exists()


def test_inputs_are_fetched_once_and_verified(stand: Stand, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    inputs = [
        blob(stand, "data/in.bin", data),
        blob(stand, "run", b"#!/bin/sh\nsha256sum data/in.bin | cut -c1-64\n", executable=True),
    ]
    body = Body(1, ["./run"], ["n"], inputs=inputs)
    with pilot(stand, tmp_path, "--slots", "2"):
        ends = stand.wait(stand.give(body, 20))
    assert {(end.outcome, end.stdout) for end in ends} == {("ok", digest_of(data) + "\n")}
    assert len([asked for asked in stand.asked if asked[0] == "GET"]) == 2


def test_a_missing_input_ends_its_own_attempts_only(stand: Stand, tmp_path: Path) -> None:
    lost = shell(1, "echo no", inputs=[Input("x.csv", "ab" * 32, 5)])
    with pilot(stand, tmp_path, "--slots", "1"):
        first = stand.give(lost, 2)
        (good,) = stand.wait(stand.give(shell(2, "echo yes")))
        assert good.stdout == "yes\n"
        for end in stand.wait(first):
            assert end.outcome == "host"
            assert "x.csv: the server does not have the file" in end.message


def test_small_and_large_outputs(stand: Stand, tmp_path: Path) -> None:
    script = "echo small > a.txt; head -c 3000000 /dev/zero > b-{n}.bin"
    body = shell(1, script, outputs=["a.txt", "b-{n}.bin"])
    stand.statuses = [503]
    with pilot(stand, tmp_path, "--slots", "2"):
        ends = stand.wait(stand.give(body, 3))
    for number, end in enumerate(ends):
        assert end.outcome == "ok"
        small, large = sorted(end.files)
        assert base64.b64decode(small.data) == b"small\n"
        assert (large.path, large.size) == (f"b-{number}.bin", 3_000_000)
        assert bytes(stand.arrived[large.digest]) == bytes(3_000_000)


def test_a_refused_output_is_an_output_failure(stand: Stand, tmp_path: Path) -> None:
    stand.statuses = [413]
    body = shell(1, "head -c 100000 /dev/zero > big", outputs=["big"])
    with pilot(stand, tmp_path, "--slots", "1"):
        (end,) = stand.wait(stand.give(body))
    assert (end.outcome, end.message) == ("output", "big: the server refused it: told so")


def test_setup_runs_once_per_host(stand: Stand, tmp_path: Path) -> None:
    body = shell(
        1,
        'cat "$COVEY_SETUP/made"; test -e seed',
        inputs=[blob(stand, "seed", b"s")],
        setup="sleep 0.5; cat seed > made; echo $COVEY_BAG >> made; echo x >> ../../../../count",
        env={"A": "b"},
    )
    cache = str(tmp_path / "cache")
    with (
        pilot(stand, tmp_path / "a", "--slots", "2", "--cache", cache),
        pilot(stand, tmp_path / "b", "--slots", "2", "--cache", cache),
    ):
        stand.until(lambda: len(stand.enrols) == 2)
        ends = stand.wait(stand.give(body, 4) + stand.give(body, 4))
    assert {(end.outcome, end.stdout) for end in ends} == {("ok", "s1\n")}
    with pilot(stand, tmp_path / "c", "--slots", "1", "--cache", cache):
        stand.until(lambda: len(stand.enrols) == 3)
        time.sleep(0.6)  # until nobody answers the two that have gone
        (end,) = stand.wait(stand.give(body))
    assert end.outcome == "ok"
    assert (tmp_path / "cache" / "count").read_text() == "x\n"


def test_a_failing_setup_is_told_and_holds_up_nobody(stand: Stand, tmp_path: Path) -> None:
    count = f"echo x >> {tmp_path}/tries;"
    body = shell(1, "true", setup=count + " echo no such library >&2; false; echo never >&2")
    with pilot(stand, tmp_path, "--slots", "1"):
        bad = stand.give(body, 2)
        (good,) = stand.wait(stand.give(shell(2, "true")))
        assert good.outcome == "ok"
        for end in stand.wait(bad):
            assert end.outcome == "setup"
            assert "exit code 1: no such library" in end.message
        (end,) = stand.wait(stand.give(body))
        assert end.outcome == "setup"
    assert (tmp_path / "tries").read_text() == "x\n"  # not tried again yet


def test_never_more_than_fits(stand: Stand, tmp_path: Path) -> None:
    """Each notes how many of its kind run; two kinds, on two cores and two fake GPUs."""
    script = (
        'f=$(mktemp {at}/XXXXXX); ls {at} | wc -l; echo "$CUDA_VISIBLE_DEVICES/$COVEY_CORES";'
        " sleep 0.2; rm $f"
    )
    for name in ("wide", "gpu"):
        (tmp_path / name).mkdir()
    wide = shell(1, script.replace("{at}", str(tmp_path / "wide")), needs=[Need(2)])
    gpu = shell(2, script.replace("{at}", str(tmp_path / "gpu")), needs=[Need(1, gpus=1)])
    with pilot(stand, tmp_path, "--slots", "2", COVEY_GPUS="4,6"):
        ends = stand.wait(stand.give(wide, 3) + stand.give(gpu, 6))
    (enrol,) = stand.enrols
    assert (enrol["gpus"], enrol["tags"]["gpus"]) == (2, "4,6")
    assert {end.stdout for end in ends[:3]} == {"1\n/2\n"}
    seen = [end.stdout.split() for end in ends[3:]]
    assert {count for count, _ in seen} <= {"1", "2"}
    assert {device for _, device in seen} == {"4/1", "6/1"}


def test_pinned_tasks_have_processors_of_their_own(stand: Stand, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    script = "grep Cpus_allowed_list /proc/self/status; sleep 0.3"
    with pilot(stand, tmp_path, "--slots", "2"):
        ends = stand.wait(stand.give(shell(1, script, pin=True), 2))
    assert len({end.stdout for end in ends}) == 2
    for end in ends:
        assert end.stdout.split()[1].isdecimal()


def test_what_never_fits_is_said(stand: Stand, tmp_path: Path) -> None:
    with pilot(stand, tmp_path, "--slots", "1", "--memory-mb", "100"):
        (end,) = stand.wait(stand.give(shell(1, "true", needs=[Need(1, 200)])))
    assert end.outcome == "host"
    assert end.message == "it needs 200 MB of memory, this pilot has 100"


def test_two_pilots_share_no_gpu(stand: Stand, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    for name in "ab":
        os.makedirs(tmp_path / name)
    with pilot(stand, tmp_path / "a", "--slots", "1", "--cache", cache, COVEY_GPUS="0,1"):
        stand.until(lambda: len(stand.enrols) == 1)
        with pilot(stand, tmp_path / "b", "--slots", "1", "--cache", cache, COVEY_GPUS="0,1,2"):
            stand.until(lambda: len(stand.enrols) == 2)
    assert [enrol["tags"]["gpus"] for enrol in stand.enrols] == ["0,1", "2"]


def test_tags_of_tasks_are_published_and_kept(stand: Stand, tmp_path: Path) -> None:
    body = shell(1, "echo 'blas=mkl' > $COVEY_TAGS", owner="ana")
    with pilot(stand, tmp_path, "--slots", "1"):
        stand.wait(stand.give(body))
        stand.until(lambda: stand.tags.get("ana:blas") == "mkl")
    with pilot(stand, tmp_path, "--slots", "1"):
        stand.until(lambda: len(stand.enrols) == 2)
    assert stand.enrols[1]["tags"]["ana:blas"] == "mkl"


def test_results_are_returned(stand: Stand, tmp_path: Path) -> None:
    body = shell(1, "echo '{\"x\": {n}}' > $COVEY_RESULT")
    with pilot(stand, tmp_path, "--slots", "1"):
        ends = stand.wait(stand.give(body, 2))
    assert [end.result for end in ends] == ['{"x":0}', '{"x":1}']


def test_who_is_followed_is_heard_while_he_runs(stand: Stand, tmp_path: Path) -> None:
    with pilot(stand, tmp_path, "--slots", "1"):
        (sequence,) = stand.give(shell(1, "echo hällo; echo oh >&2; sleep 20"))
        stand.watch(Followed(1, -1))
        stand.until(lambda: len(stand.printed) >= 2, 10)
        assert sequence not in stand.ends
    assert sorted(stand.printed)[:2] == [
        [1, 0, 1, sequence, 1, 0, "hällo\n"],
        [1, 0, 1, sequence, 2, 0, "oh\n"],
    ]


def test_draining_waits_for_uploads(stand: Stand, tmp_path: Path) -> None:
    stand.gate.clear()
    body = shell(
        1, "head -c 100000 /dev/zero > big; touch " + str(tmp_path / "ran"), outputs=["big"]
    )
    with pilot(stand, tmp_path, "--slots", "1") as process:
        sequences = stand.give(body)
        stand.until(lambda: any(asked[0] == "PUT" for asked in stand.asked) or _tick())
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        stand.gate.set()
        (end,) = stand.wait(sequences)
        assert (end.outcome, end.files[0].size) == ("ok", 100_000)
        assert process.wait(10) == 0


@pytest.mark.parametrize("python", [*pythons(), "pypy3"])
def test_on_every_python_that_hosts_have(stand: Stand, tmp_path: Path, python: str) -> None:
    body = shell(
        1,
        'cat in "$COVEY_SETUP/made" > out; head -c 50000 /dev/zero > big;'
        " echo '{\"n\": {n}}' > $COVEY_RESULT; echo speed={n} > $COVEY_TAGS",
        inputs=[blob(stand, "in", b"in\n")],
        outputs=["out", "big"],
        setup="echo made > made",
        needs=[Need(1, 64)],
        owner="ana",
    )
    with pilot(stand, tmp_path, "--slots", "2", python=python) as process:
        ends = stand.wait(stand.give(body, 6))
        stand.until(lambda: "ana:speed" in stand.tags)
        stand.send_home()
        assert process.wait(20) == 0
    for number, end in enumerate(ends):
        assert (end.outcome, end.result) == ("ok", f'{{"n":{number}}}'), end
        large, small = sorted(end.files)
        assert base64.b64decode(small.data) == b"in\nmade\n"
        assert large.digest == digest_of(bytes(50_000))
    assert not (tmp_path / "work").exists()


def _tick() -> bool:
    time.sleep(0.02)
    return False
