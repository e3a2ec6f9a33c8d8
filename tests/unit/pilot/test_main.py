"""Answers as they arrive, from servers older and newer than the pilot; and how it is started."""

import json
from pathlib import Path

import pytest

from covey.pilot import __main__ as command
from covey.pilot.host import host_facts
from covey.pilot.main import read_answer
from covey.pilot.options import Options
from covey.pilot.protocol.messages import Answer, Body, Followed, Held, Input, Need, Task

BODY = Body(1, ["a"], ["x"], needs=[Need(), Need(2, 100)], inputs=[Input("in", "ab", 3, True)])
ANSWER = Answer(
    2,
    9,
    [BODY],
    [Task(7, 1, 2, ["v", 1], 1, 5, 2.0, [Input("own", "cd")]), Task(8, 1, 3, ["w", 2])],
    [Held(1, 2, 3, 4)],
    follow=[Followed(1, -1)],
)


def test_rows_within_rows() -> None:
    found = read_answer(json.loads(json.dumps(ANSWER._asdict())))
    assert found == ANSWER
    assert isinstance(found.bodies[0].needs[1], Need)
    assert isinstance(found.bodies[0].inputs[0], Input)
    assert isinstance(found.tasks[0].inputs[0], Input)
    assert found.follow is not None
    assert isinstance(found.follow[0], Followed)


def test_what_is_new_is_ignored_and_what_is_missing_has_its_default() -> None:
    content = json.loads(json.dumps(ANSWER._asdict()))
    content["colour"] = "blue"
    content["bodies"][0].append("more")
    content["bodies"][0][5][1] += ["more", "still"]
    content["tasks"][0][7][0] = ["own"]
    content["tasks"][1] = content["tasks"][1][:4]
    found = read_answer(content)
    assert found.bodies == [BODY]
    assert found.tasks[0].inputs == [Input("own")]
    assert found.tasks[1] == Task(8, 1, 3, ["w", 2])
    assert read_answer({"epoch": 1, "number": 2}) == Answer(1, 2)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    found: list[Options] = []

    class Pilot:
        def __init__(self, options: Options) -> None:
            found.append(options)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(command, "Pilot", Pilot)
    return found


def test_started_by_a_file(tmp_path: Path, started: list[Options]) -> None:
    start = {
        "address": "http://127.0.0.1:1", "secret": "s", "directory": "/d", "slots": 2,
        "memory_mb": 500, "gpus": ["0"], "cache": "/c", "until": 5.0,
    }  # fmt: skip
    (tmp_path / "start.json").write_text(json.dumps(start))
    assert command.main([str(tmp_path / "start.json")]) == 0
    (options,) = started
    assert options.address.url() == "http://127.0.0.1:1"
    assert (options.memory_mb, options.gpus, options.cache, options.until) == (
        500,
        ["0"],
        "/c",
        5.0,
    )
    assert not (tmp_path / "start.json").exists(), "its secret is on no disk any more"


def test_what_only_a_newer_server_says_is_ignored(tmp_path: Path, started: list[Options]) -> None:
    path = tmp_path / "start.json"
    start = {"address": "http://127.0.0.1:1", "secret": "s", "directory": "/d", "slots": 0}
    path.write_text(json.dumps({**start, "colour": "blue"}))
    assert command.main([str(path)]) == 0
    assert started[0].slots == host_facts.cores(), "none said: all there are"


def test_a_start_file_that_is_none_is_refused(
    tmp_path: Path, started: list[Options], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "start.json"
    path.write_text("[]")
    assert command.main([str(path)]) == 2
    assert "not a start file" in capsys.readouterr().err
    assert path.exists()
    assert not started


def test_started_by_hand(tmp_path: Path, started: list[Options]) -> None:
    (tmp_path / "secret").write_text("s\n")
    words = ["--server", "http://127.0.0.1:1", "--secret-file", str(tmp_path / "secret")]
    words += ["--slots", "3", "--memory-mb", "9", "--disk-mb", "8", "--gpus", "0,1"]
    words += ["--cache", str(tmp_path / "c"), "--cache-mb", "7", "--directory", str(tmp_path / "d")]
    assert command.main(words) == 0
    (options,) = started
    assert (options.secret, options.slots, options.gpus) == ("s", 3, "0,1")
    assert (options.memory_mb, options.disk_mb, options.cache_mb) == (9, 8, 7)
    assert options.cache == str(tmp_path / "c")
