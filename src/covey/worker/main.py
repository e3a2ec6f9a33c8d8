"""The worker's main loop: say hello, or why not; run calls until the slot closes the line.

COVEY_WORKER_PYTHON   the Python that functions were pickled with, such as `cpython 3.11`
COVEY_WORKER_PATH     the client's folders of modules; those that exist here are searched last

The program's own modules are in our file, too. They are imported from there, unless this host has
exactly the same files at the client's path: then a module also finds data files beside it.
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

from .calls import CallRunner, described
from .frames import (
    BY_FILE,
    CALLS,
    FILE,
    HELLO,
    MOST_INLINE,
    QUEUE,
    REFUSE,
    VALUE,
    FrameSocket,
    Queue,
)

WANTED, PATH = "COVEY_WORKER_PYTHON", "COVEY_WORKER_PATH"
INITIALIZER = "initializer"  # its name in the program's own file
MODULES = "modules"  # the folder in that file with the modules that the client has sent
INITIALIZER_FAILED = "the initializer failed: "


def main() -> None:
    """Never returns: threads that functions left behind are not waited for."""
    status = 0
    line = FrameSocket(int(os.environ.pop(CALLS)))
    queue = os.environ.pop(QUEUE, "")
    try:
        runner = _prepared()
        if isinstance(runner, str):
            line.send(REFUSE, runner.encode("utf-8", "replace"))
        else:
            _serve(line, _source(line, queue), runner)
        _run_exit_functions()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the slot is gone
    except BaseException as error:
        status = 1
        sys.stderr.write("covey worker: {}\n".format(described(error)))
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
    """Why this Python cannot be used; empty if it can. Functions are sent as bytecode, which no
    other minor version understands."""
    if not wanted or wanted == python_here():
        return ""
    return (
        "functions were pickled with {}, but {} on {} is {} ({}): name another Python with "
        "Executor(python=...), or run the client with the same Python".format(
            wanted, sys.executable, platform.node(), python_here(), platform.python_version()
        )
    )


def _prepared() -> "CallRunner | str":
    """The object that runs the calls; or why no call can be run here."""
    words = refusal(os.environ.pop(WANTED, ""))
    if words:
        return words
    with zipfile.ZipFile(sys.argv[0]) as program:
        _extend_path(os.environ.pop(PATH, "").split(os.pathsep), program)
        packed = program.read(INITIALIZER) if INITIALIZER in program.namelist() else b""
    # This module may need a newer Python than we do.
    runner = CallRunner(importlib.import_module(".pickler", __package__).dumps)
    if not packed:
        return runner
    try:
        runner.prepare(packed)
    except BaseException as error:
        traceback.print_exc()
        return INITIALIZER_FAILED + described(error)
    return runner


def _extend_path(folders: List[str], program: zipfile.ZipFile) -> None:
    there = [folder for folder in folders if folder and os.path.exists(folder)]
    sent = {
        name[len(MODULES) + 1 :]: name
        for name in program.namelist()
        if name.startswith(MODULES + "/")
    }
    if any(_here(path, there) != program.read(name) for path, name in sent.items()):
        sys.path.insert(1, os.path.join(os.path.abspath(sys.argv[0]), MODULES))
    sys.path.extend(folder for folder in there if folder not in sys.path)


def _here(path: str, folders: List[str]) -> bytes:
    """The file that this host would import instead of one that was sent; empty if it has none."""
    top = path.partition("/")[0]
    for folder in folders:
        if os.path.exists(os.path.join(folder, top)):
            try:
                with open(os.path.join(folder, path), "rb") as file:
                    return file.read()
            except OSError:
                return b""
    return b""


def _source(line: FrameSocket, queue: str) -> Any:
    """The object that receives calls and sends answers."""
    try:
        return Queue(line, int(queue)) if queue else line
    except OSError:
        return line


def _serve(line: FrameSocket, source: Any, runner: CallRunner) -> None:
    home = os.getcwd()
    here = _handle(home)
    pid = os.getpid()
    hello = dict(source.about(), python=platform.python_version(), pid=pid)
    line.send(HELLO, json.dumps(hello).encode())
    large = 0
    while True:
        call = source.receive()
        if call is None:
            return
        path = os.path.join(home, os.fsdecode(bytes(call[1:]))) if call[:1] == BY_FILE else ""
        kind, data, proof = runner.do(call, path)
        del call
        if os.getpid() != pid:
            os._exit(0)  # a function forked, and both processes returned: only one is the worker
        try:
            os.chdir(here)
        except OSError:
            pass
        if kind == VALUE and len(data) + len(proof) > MOST_INLINE:
            large += 1
            name = "value-{}".format(large)
            with open(os.path.join(home, name), "wb") as file:
                file.write(data)
                file.write(proof)
            source.answer(FILE, name.encode())
        else:
            source.answer(kind, data + proof)
        del data


def _handle(folder: str) -> "int | str":
    """A descriptor of the folder, if possible: changing there costs less than by its name."""
    try:
        return os.open(folder, os.O_RDONLY)
    except OSError:
        return folder


def _run_exit_functions() -> None:
    run = getattr(atexit, "_run_exitfuncs", None)
    if run is not None:
        run()
