"""The worker's life: say hello, or why not; do calls until the slot hangs up.

COVEY_WORKER_PYTHON   the Python that functions were pickled with, such as `cpython 3.11`
COVEY_WORKER_PATH     where the client finds its modules; what exists here is searched last
"""

import atexit
import importlib
import json
import os
import platform
import sys
import traceback
import zipfile
from typing import Any, List

from .calls import Doer, said
from .frames import BY_FILE, CALLS, FILE, HELLO, MOST_INLINE, QUEUE, REFUSE, VALUE, Line, Queue

WANTED, PATH = "COVEY_WORKER_PYTHON", "COVEY_WORKER_PATH"
INITIALIZER = "initializer"  # as which it is kept in the program's own file
INITIALIZER_FAILED = "the initializer failed: "


def main() -> None:
    """Never returns: threads that functions left behind are not waited for."""
    status = 0
    line = Line(int(os.environ.pop(CALLS)))
    queue = os.environ.pop(QUEUE, "")
    try:
        found = _prepared()
        if isinstance(found, str):
            line.send(REFUSE, found.encode("utf-8", "replace"))
        else:
            _serve(line, _source(line, queue), found)
        _run_exit_functions()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the slot is gone
    except BaseException as error:
        status = 1
        sys.stderr.write("covey worker: {}\n".format(said(error)))
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(status)


def python_here() -> str:
    name = platform.python_implementation().lower()
    return "{} {}.{}".format(name, *sys.version_info[:2])


def refusal(wanted: str) -> str:
    """Why this Python will not do; empty if it will. Functions travel as bytecode, which no other
    minor version understands."""
    if not wanted or wanted == python_here():
        return ""
    return (
        "functions were pickled with {}, but {} on {} is {} ({}): name another one with "
        "Executor(python=...), or run the client with the same".format(
            wanted, sys.executable, platform.node(), python_here(), platform.python_version()
        )
    )


def _prepared() -> "Doer | str":
    """Who does the calls; or why there is no use in any."""
    words = refusal(os.environ.pop(WANTED, ""))
    if words:
        return words
    _extend_path(os.environ.pop(PATH, "").split(os.pathsep))
    # It may need a newer Python than we do.
    doer = Doer(importlib.import_module(".pickler", __package__).dumps)
    try:
        with zipfile.ZipFile(sys.argv[0]) as program:
            packed = program.read(INITIALIZER)
    except KeyError:
        return doer  # there is none
    try:
        doer.prepare(packed)
    except BaseException as error:
        traceback.print_exc()
        return INITIALIZER_FAILED + said(error)
    return doer


def _extend_path(folders: List[str]) -> None:
    for folder in folders:
        if folder and folder not in sys.path and os.path.exists(folder):
            sys.path.append(folder)


def _source(line: Line, queue: str) -> Any:
    """Where calls come from, and answers go to."""
    try:
        return Queue(line, int(queue)) if queue else line
    except OSError:
        return line


def _serve(line: Line, source: Any, doer: Doer) -> None:
    home = os.getcwd()
    here = _handle(home)
    pid = os.getpid()
    told = dict(source.about(), python=platform.python_version(), pid=pid)
    line.send(HELLO, json.dumps(told).encode())
    large = 0
    while True:
        call = source.receive()
        if call is None:
            return
        path = os.path.join(home, os.fsdecode(bytes(call[1:]))) if call[:1] == BY_FILE else ""
        kind, data = doer.do(call, path)
        del call
        if os.getpid() != pid:
            os._exit(0)  # a function forked, and both returned: only one of them is the worker
        try:
            os.chdir(here)
        except OSError:
            pass
        if kind == VALUE and len(data) > MOST_INLINE:
            large += 1
            name = "value-{}".format(large)
            with open(os.path.join(home, name), "wb") as file:
                file.write(data)
            kind, data = FILE, name.encode()
        source.answer(kind, data)
        del data


def _handle(folder: str) -> "int | str":
    """By which going there costs less than by its name, if it can be had."""
    try:
        return os.open(folder, os.O_RDONLY)
    except OSError:
        return folder


def _run_exit_functions() -> None:
    run = getattr(atexit, "_run_exitfuncs", None)
    if run is not None:
        run()
