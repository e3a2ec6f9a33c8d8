"""Every command of the pages in docs/ that people follow step by step is run, as a reader would.

In a `console` block a line that begins with `$ ` is a command, and goes on where `> ` follows; the
lines below it are what it is to print, each somewhere in the output, with `…` for anything. A
command with `…` in it is the one that was printed before, and is pasted. What stands in a comment
above a block:

- `exit 1`: its commands fail;
- `stays`: its command goes on in the background; `ends`: Ctrl-C for what was started last;
- `soon`: its command shows that after a while, and is repeated until then;
- `on NAME`: from here on another machine: a directory, and a home, of its own;
- `copy DIR`: what the reader has at hand from there on; `carry PATH to NAME`: to another machine.

`covey.example.org:8300` is this machine and a free port.
"""

import contextlib
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["tutorial.md", "troubleshooting.md", "server.md", "pilots.md", "classad.md", "policies.md"]
SECONDS = 300
pytestmark = pytest.mark.timeout(2 * SECONDS)
HERE, PORT = "covey.example.org", "8300"

_STEP = re.compile(r"<!-- (?P<told>[^\n]*) -->|```console\n(?P<block>.*?)```", re.DOTALL)


class Step(NamedTuple):
    """A command with what it prints; or, without one, something to do first."""

    command: str
    printed: list[str]
    told: list[str]

    @property
    def status(self) -> int:
        return next((int(words.split()[1]) for words in self.told if words[:5] == "exit "), 0)


def steps(text: str) -> Iterator[Step]:
    told: list[str] = []
    for match in _STEP.finditer(text):
        if match["told"] is not None:
            words = match["told"].removeprefix("setup: ")
            if words.startswith(("exit ", "stays", "soon")):
                told.append(words)  # of the block that follows
            else:
                yield Step("", [], [words])
            continue
        for part in re.split(r"^\$ ", match["block"], flags=re.MULTILINE)[1:]:
            command, *printed = part.rstrip("\n").split("\n")
            while command.endswith("\\") or (printed and printed[0].startswith(">")):
                command += "\n" + printed.pop(0).removeprefix("> ").removeprefix(">")
            yield Step(command, [line for line in printed if line.strip()], told)
        told = []


def fits(expected: str, output: str) -> bool:
    return pattern(expected).search(output) is not None


def pattern(expected: str) -> re.Pattern[str]:
    return re.compile("[^\n]*".join(re.escape(part) for part in expected.strip().split("…")))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Reader:
    """Types the commands of one page."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place = self._machine("here")
        self._shown = ""  # all that was printed
        self._behind: list[tuple[subprocess.Popen[bytes], Path]] = []

    def follow(self, step: Step) -> None:
        if step.command:
            self._type(step)
            return
        word, *rest = step.told[0].split()
        if word == "copy":
            for path in (ROOT / rest[0]).iterdir():
                if path.is_file():
                    shutil.copy(path, self._place)
        elif word == "on":
            self._place = self._machine(rest[0])
        elif word == "carry":
            shutil.copy(self._place / rest[0], self._machine(rest[2]))
        elif word == "ends":
            self._end(*self._behind.pop())

    def _machine(self, name: str) -> Path:
        (self._folder / name / "tmp").mkdir(parents=True, exist_ok=True)
        return self._folder / name

    def _type(self, step: Step) -> None:
        command = step.command
        if "…" in command:
            command = pattern(command).findall(self._shown)[-1]
        if "stays" in step.told:
            output = self._start(command, step.printed)
        else:
            output = self._run(command, step.status)
        until = time.monotonic() + SECONDS
        while "soon" in step.told and time.monotonic() < until:
            if all(fits(line, output) for line in step.printed):
                break
            time.sleep(0.2)
            output = self._run(command, step.status)
        self._shown += output
        for line in step.printed:
            assert fits(line, output), f"{line!r} is not in:\n$ {command}\n{output}"

    def _run(self, command: str, status: int) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._place,
            env=environment(self._place),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == status, f"$ {command}\n{done.stdout}"
        return done.stdout

    def _start(self, command: str, printed: list[str]) -> str:
        """What it says until it has said all that it is to say."""
        log = self._folder / f"behind-{time.monotonic_ns()}"
        outer, inner = pty.openpty()  # what it says may be for people only
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._place,
            env=environment(self._place),
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        threading.Thread(target=_copy, args=(outer, log), daemon=True).start()
        self._behind.append((process, log))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and process.poll() is None:
            if all(fits(line, _text(log)) for line in printed):
                break
            time.sleep(0.05)
        return _text(log)

    def _end(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"Ctrl-C did not end it:\n{_text(log)}")

    def leave(self) -> None:
        while self._behind:
            self._end(*self._behind.pop())
        covey = Path(sys.executable).parent / "covey"
        for place in self._folder.iterdir():
            if (place / ".covey").is_dir():
                subprocess.run([covey, "stop"], cwd=place, env=environment(place), check=False)
        for path in Path("/proc").glob("[0-9]*/cmdline"):  # pilots that a failure left behind
            with contextlib.suppress(OSError):
                if os.fsencode(self._folder) in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGTERM)


def _copy(terminal: int, log: Path) -> None:
    with open(log, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while data := os.read(terminal, 4096):  # an error when nobody is there any more
            file.write(data)
    os.close(terminal)


def _text(log: Path) -> str:
    return log.read_text(errors="replace").replace("\r", "") if log.exists() else ""


def environment(home: Path) -> dict[str, str]:
    taken = ("COVEY_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(taken)}
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
    kept["HOME"] = str(home)
    kept["TMPDIR"] = str(home / "tmp")
    kept["COVEY_LOCAL_SLOTS"] = "2"
    kept["CI"] = "1"
    return kept


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_who_types_the_commands_sees_what_the_page_shows(
    page: str, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    text = text.replace(HERE, "localhost").replace(PORT, str(free_port()))
    found = list(steps(text))
    assert any(step.command for step in found)
    reader = Reader(tmp_path)
    try:
        for step in found:
            reader.follow(step)
    finally:
        reader.leave()


def test_the_demo_shows_a_sweep_and_a_second_machine(tmp_path: Path) -> None:
    """And leaves nothing behind, not even a process."""
    environ = environment(Reader(tmp_path)._machine("fresh"))
    environ["COVEY"] = str(Path(sys.executable).parent / "covey")
    done = subprocess.run(
        [ROOT / "examples" / "epidemic" / "demo"],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for words in (
        "bag 2 epidemic finished: 120 tasks done…",
        "R0 2.8: …ill on the worst day…",
        "works for https://…, with 1 slot",
        "bag 4 epidemic finished: 120 tasks done…",
        "active…elsewhere",
    ):
        assert fits(words, done.stdout), f"{words!r} is not in:\n{done.stdout}"
    assert not list((tmp_path / "fresh" / "tmp").iterdir())


def test_what_a_page_shows_is_compared() -> None:
    assert fits("bag 1 finished: 5 tasks done…", "x\nbag 1 finished: 5 tasks done in 3 s\n")
    assert not fits("bag 1 …failed", "bag 1 finished\n3 failed")
    assert [step.command for step in steps("```console\n$ a\nout\n$ b\n```\n")] == ["a", "b"]
    (step,) = steps("<!-- exit 1 -->\n\n```console\n$ a\n```\n")
    assert step.status == 1


def test_what_is_missing_on_a_page_is_noticed(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for text in ("$ echo one\ntwo", "$ false"):
        (step,) = steps(f"```console\n{text}\n```\n")
        with pytest.raises(AssertionError):
            reader.follow(step)
    for text in ("$ echo 'echo pasted 7'\n…pasted…", "$ echo pasted …\npasted 7"):
        (step,) = steps(f"```console\n{text}\n```\n")
        reader.follow(step)
    reader.leave()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} names {target}"
