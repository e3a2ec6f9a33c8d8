"""Every command of the tutorial and of the troubleshooting page is run, as a reader would.

In a `console` block a line that begins with `$ ` is a command; the lines below it are what it is
to print, each somewhere in the output, with `…` for anything. `<!-- exit 1 -->` above a block says
that its commands fail, and `<!-- setup: copy DIR -->` what the reader has at hand from there on.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["tutorial.md", "troubleshooting.md"]
SECONDS = 120

_STEP = re.compile(
    r"<!-- exit (?P<status>\d+) -->|<!-- setup: copy (?P<copied>\S+) -->"
    r"|```console\n(?P<block>.*?)```",
    re.DOTALL,
)


class Step(NamedTuple):
    """A command with what it prints; or something to copy first."""

    command: str
    printed: list[str]
    status: int = 0
    copied: str = ""


def steps(text: str) -> Iterator[Step]:
    status = 0
    for match in _STEP.finditer(text):
        if match["status"] is not None:
            status = int(match["status"])
        elif match["copied"] is not None:
            yield Step("", [], 0, match["copied"])
        else:
            for part in re.split(r"^\$ ", match["block"], flags=re.MULTILINE)[1:]:
                command, *printed = part.rstrip("\n").split("\n")
                while command.endswith("\\"):
                    command += "\n" + printed.pop(0)
                yield Step(command, [line for line in printed if line.strip()], status)
            status = 0


def fits(expected: str, output: str) -> bool:
    parts = [re.escape(part) for part in expected.strip().split("…")]
    return re.search("[^\n]*".join(parts), output) is not None


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
    kept["COVEY_LOCAL_SLOTS"] = "2"
    kept["CI"] = "1"
    return kept


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_who_types_the_commands_sees_what_the_page_shows(
    page: str, tmp_path: Path
) -> None:
    found = list(steps((ROOT / "docs" / page).read_text(encoding="utf-8")))
    assert any(step.command for step in found)
    environ = environment()
    try:
        for step in found:
            if step.copied:
                for path in (ROOT / step.copied).iterdir():
                    if path.is_file():
                        shutil.copy(path, tmp_path)
                continue
            done = subprocess.run(
                ["bash", "-c", step.command],
                cwd=tmp_path,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            told = f"$ {step.command}\n{done.stdout}"
            assert done.returncode == step.status, told
            for line in step.printed:
                assert fits(line, done.stdout), f"{line!r} is not in:\n{told}"
    finally:
        covey = Path(sys.executable).parent / "covey"
        subprocess.run([covey, "stop"], cwd=tmp_path, env=environ, check=False)


def test_what_a_page_shows_is_compared() -> None:
    assert fits("bag 1 finished: 5 tasks done…", "x\nbag 1 finished: 5 tasks done in 3 s\n")
    assert not fits("bag 1 …failed", "bag 1 finished\n3 failed")
    assert [step.command for step in steps("```console\n$ a\nout\n$ b\n```\n")] == ["a", "b"]
