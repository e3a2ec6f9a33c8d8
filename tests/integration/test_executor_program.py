"""The file that a worker is: what is in it, and what it says when it is started."""

import io
import json
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import cloudpickle
import pytest

from covey.executor import program
from covey.pilot.calls.call_records import CALLS, HELLO, REFUSE
from covey.worker.frames import FrameSocket
from tests.integration.test_slots_interpreters import pythons


def test_the_same_parts_make_the_same_file() -> None:
    assert program.program() == program.program()
    assert program.program(b"initializer") != program.program()
    with zipfile.ZipFile(io.BytesIO(program.program())) as found:
        names = found.namelist()
    assert {"__main__.py", "covey_worker/main.py", "cloudpickle/__init__.py"} <= set(names)
    assert not [name for name in names if name.startswith("covey/")]


def test_it_is_started_with_the_python_that_was_named_or_one_like_ours() -> None:
    assert program.argv("python3.12")[-1:] == ("python3.12",)
    assert program.argv()[2:] == (sys.executable, f"python{program.version()}", "python3")


def said(folder: Path, made: bytes, python: str = sys.executable, **told: str) -> bytes:
    """The first frame of a worker that is started there."""
    (folder / program.NAME).write_bytes(made)
    ours, theirs = socket.socketpair()
    environ = {"PATH": os.environ["PATH"], CALLS: str(theirs.fileno()), **told}
    command = program.argv(python)
    fds = (theirs.fileno(),)
    with subprocess.Popen(command, cwd=folder, env=environ, pass_fds=fds) as worker:
        theirs.close()
        found = FrameSocket(ours.fileno()).receive()
        ours.close()
        assert worker.wait(30) == 0
    assert found is not None
    return found


def test_it_says_hello_and_goes_when_nobody_is_there(tmp_path: Path) -> None:
    found = said(tmp_path, program.program(), **program.environment([]))
    assert found[:1] == HELLO
    assert json.loads(found[1:])["python"].startswith(program.version())


def test_it_refuses_functions_of_another_python(tmp_path: Path) -> None:
    found = said(tmp_path, program.program(), COVEY_WORKER_PYTHON="cpython 3.6")
    assert found[:1] == REFUSE
    assert b"pickled with cpython 3.6" in found


@pytest.mark.parametrize("python", [*pythons(), "pypy3"])
def test_other_pythons_understand_enough_to_refuse(tmp_path: Path, python: str) -> None:
    found = said(tmp_path, program.program(), python, **program.environment([]))
    if found[:1] == HELLO:
        assert json.loads(found[1:])["python"].startswith(f"{program.version()}.")
    else:
        assert found[:1] == REFUSE
        assert b"pickled with cpython" in found


def test_it_refuses_when_its_initializer_fails(tmp_path: Path) -> None:
    packed = cloudpickle.dumps((int, ("three",)))
    found = said(tmp_path, program.program(packed), **program.environment([]))
    assert found[:1] == REFUSE
    assert b"the initializer failed: ValueError: invalid literal" in found
