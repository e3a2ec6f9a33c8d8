"""A directory in which somebody uses covey from Python, with a real server and real pilots."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.client.embedded import is_held, read_record


class Place:
    def __init__(self, here: Path) -> None:
        self.here = here
        self.directory = here / ".covey"

    def server_pid(self) -> int:
        record = read_record(self.directory)
        assert record is not None
        return record.pid

    def kill_server(self) -> None:
        os.kill(self.server_pid(), signal.SIGKILL)
        wait_until(lambda: not is_held(self.directory))

    def covey(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "covey", *words],
            cwd=self.here,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    def start(self, program: str) -> "subprocess.Popen[str]":
        """Python, with its output in pipes."""
        return subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=self.here,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def python(self, program: str) -> tuple[str, str]:
        child = self.start(program)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        return out, err


def working_in(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The body of a fixture."""
    for name in list(os.environ):
        if name.startswith("COVEY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here))
    monkeypatch.setenv("COVEY_LOCAL_SLOTS", "2")
    monkeypatch.chdir(here)
    place = Place(here)
    yield place
    monkeypatch.chdir(here)
    with contextlib.suppress(covey.ServerAway):
        place.covey("stop")


@contextlib.contextmanager
def ipython(kernel: object = None) -> Iterator[Any]:
    """IPython's shell, which runs cells; with a kernel it is that of a notebook."""
    from IPython.core import interactiveshell

    outer: Any = interactiveshell.InteractiveShell
    shell = outer()
    if kernel is not None:
        shell.kernel = kernel
    outer._instance = shell
    try:
        yield shell
    finally:
        outer._instance = None


def wait_until(true: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
