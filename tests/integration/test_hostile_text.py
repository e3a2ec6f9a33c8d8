"""No command lets a name, a tag, a message or a log move the cursor of whoever looks.

A real server has a bag, a task and a host whose texts are as bad as can be. Every command runs on a
real terminal (a pty), and of all that it prints only covey's own few sequences may begin with ESC.
"""

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.cli.main import COMMANDS
from tests.faults.world import COVEY, World, open_world

# A window title, a cleared screen, a colour, C1, a bell, letters from right to left, backspaces.
EVIL = "\x1b]0;EVIL\x07\x1b[2J\x1b[7m\x9b7m\x9d0;x\x9c\u202eabc\u202c\u2066\b\b\rEVIL"
OWN = re.compile(r"\x1b\[(?:K|J|[0-9]+A|0m|3[0-9]m|9[0-9]m)")  # of covey's own drawing
BAD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

WORK = r"""
printf '%s' "$EVIL" | cut -c1- ; printf '%s\n' "$EVIL" >&2
printf 'evil=%s\n' "$EVIL" >> "$COVEY_TAGS"
echo hello > out.txt
printf '%s\n' "$REPORT"
[ $COVEY_TASK -ne 1 ] || { printf 'boom %s\n' "$EVIL" >&2; exit 3; }
"""

# Every command; {bag} is over, and has a failed task. None: it needs what is not here.
LOOKS: dict[str, list[list[str]] | None] = {
    "run": [["run", "--name", "x", "--", "sh", "-c", "printf '%s' \"$EVIL\" >&2; exit 1"]],
    "submit": [["submit", "--dry-run", "--name", "x", "--", "echo", EVIL]],
    "init": None,  # prints covey's own text
    "append": [["append", "{bag}", "-p", "i=1"]],
    "close": [["close", "{bag}"]],
    "watch": [["watch", "{bag}"]],
    "retry": [["retry", "{bag}", "--cause", EVIL]],
    "pause": [["pause", "{bag}"]],
    "resume": [["resume", "{bag}"]],
    "cancel": [["cancel", "{bag}"]],
    "bags": [["bags"], ["bags", "--json"]],
    "status": [["status", "{bag}"]],
    "help": None,  # prints covey's own documentation
    "show": [["show", "{bag}"], ["show", "{bag}", "--json"]],
    "tasks": [["tasks", "{bag}"], ["tasks", "{bag}", "--json"]],
    "explain": [["explain", "{bag}"], ["explain", "{bag}", "1"]],
    "failures": [["failures", "{bag}"], ["failures", "{bag}", "--json"]],
    "logs": [["logs", "{bag}"], ["logs", "{bag}", "1", "--stderr"], ["logs", "{bag}", "--json"],
             ["logs", "-f", "{bag}"]],
    "results": [["results", "{bag}"], *(["results", "{bag}", "--format", form]
                for form in ("csv", "jsonl", "json")), ["results", "{bag}", "--where", EVIL],
                ["results", "{bag}", "--columns", EVIL]],
    "pull": [["pull", "{bag}", "--to", "there", "--template", "{task}"]],
    "hosts": [["hosts", "--tags"], ["hosts", "--json"]],
    "pilots": [["pilots", "--tags"], ["pilots", "--all"]],
    "pilot-command": [["pilot-command"]],
    "serve": None,  # writes JSON in ASCII
    "stop": None,  # the others need the server
    "dismiss": [["dismiss", EVIL]],
    "token": [["token", "create", EVIL], ["token", "list"]],
    "policy": [["policy", "show", "{bag}"], ["policy", "check", "--requirements", EVIL]],
    "site": [["site", "list"], ["site", "show", EVIL],
             ["site", "jobs", "local"], ["site", "jobs", EVIL], ["site", "weights"],
             ["site", "weights", "--broker", EVIL], ["site", "weights", "--history"]],
    "purge": [["purge", "logs", "--bag", "{bag}"], ["purge", "--help"]],
    "doctor": None,  # looks at this machine only
    "config": [["config"]],
    "classad": [["classad", "eval", f'"{EVIL}"'], ["classad", "check", EVIL]],
    "lab": None,  # simulated worlds, with covey's own names
    "schema": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--slots", "2", env={"EVIL": EVIL})
        yield found


@pytest.fixture(scope="module")
def bag(world: World) -> int:
    report = json.dumps({f"name {EVIL}": EVIL, "x": EVIL}, ensure_ascii=False)
    made = world.submit(
        WORK,
        2,
        name=f"bag {EVIL}",
        notes=EVIL,
        labels={"label": EVIL},
        env={"EVIL": EVIL.replace("\0", ""), "REPORT": report},
        outputs=("out.txt",),
    )
    world.wait_over(made)
    return made


def on_terminal(world: World, words: list[str]) -> str:
    """What the command prints on a terminal, on both streams."""
    ours, theirs = pty.openpty()
    env = {**world.environment(), "EVIL": EVIL, "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        [*COVEY, "--dir", str(world.directory), *words],
        env=env, cwd=world.root, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    found = bytearray()
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        found += data
    os.close(ours)
    assert process.wait(60) in (0, 1, 2)
    assert b"this is a bug" not in found, found.decode()
    return found.decode("utf-8", "replace")


def test_every_command_is_looked_at() -> None:
    assert LOOKS.keys() == COMMANDS.keys()


@pytest.mark.parametrize(
    "words",
    [words for every in LOOKS.values() for words in every or ()],
    ids=lambda w: " ".join(w[:2]),
)
def test_no_command_prints_what_moves_the_cursor(world: World, bag: int, words: list[str]) -> None:
    words = [word.replace("{bag}", str(bag)) for word in words]
    printed = on_terminal(world, words)
    bad = BAD.findall(OWN.sub("", printed))
    assert not bad, printed


def test_the_words_themselves_are_shown(world: World, bag: int) -> None:
    assert "EVIL" in on_terminal(world, ["show", str(bag)])
    assert "boom ·]0;EVIL·" in on_terminal(world, ["logs", str(bag), "1"])
    assert "EVIL" in on_terminal(world, ["hosts", "--tags"])


def test_a_file_gets_a_log_as_it_was_printed(world: World, bag: int, tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COVEY, "--dir", str(world.directory), "logs", str(bag), "1", "--stderr"],
        env=world.environment(), cwd=world.root, capture_output=True, check=True,
    )  # fmt: skip
    assert f"boom {EVIL}\n".encode() in ran.stdout
    assert EVIL in on_terminal(world, ["logs", str(bag), "1", "--stderr", "--raw"])


def test_json_says_the_same_and_shows_nothing(world: World, bag: int) -> None:
    text = world.covey("show", str(bag), "--json").stdout
    assert not BAD.search(text)
    assert json.loads(text)["name"] == f"bag {EVIL}"
