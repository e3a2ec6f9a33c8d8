"""The worker as one file: `covey.worker`, our cloudpickle, the initializer and the program's own
modules, zipped, behind a few lines of shell. The same parts make the same bytes: a server that has
it gets it no second time."""

import functools
import io
import sys
import zipfile
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable

from covey.worker.main import INITIALIZER, MODULES, PATH, WANTED, python_here

NAME = "covey-worker.pyz"
MAIN = "from covey_worker.main import main\n\nmain()\n"
PARTS = {"covey.worker": "covey_worker", "cloudpickle": "cloudpickle"}
FIRST_DAY = (1980, 1, 1, 0, 0, 0)
# What a shell does with the file: hand it to the first of the given that is there. The client's own
# path means nothing on other hosts. Python looks for the archive behind it.
START = b"""#!/bin/sh
for python in "$@"; do
    command -v "$python" >/dev/null 2>&1 && exec "$python" "$0"
done
echo "there is no $*" >&2
exit 127
"""


def program(initializer: bytes = b"", modules: Mapping[str, bytes] | None = None) -> bytes:
    """`modules`: source by path, relative to the folder from which they are imported."""
    entries = dict(_parts())
    for path, source in (modules or {}).items():
        entries[f"{MODULES}/{path}"] = source
    if initializer:
        entries[INITIALIZER] = initializer
    made = io.BytesIO()
    made.write(START)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in sorted(entries.items()):
            file.writestr(zipfile.ZipInfo(name, FIRST_DAY), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


@functools.cache
def _parts() -> tuple[tuple[str, bytes], ...]:
    found = [("__main__.py", MAIN.encode())]
    for package, name in PARTS.items():
        for one in resources.files(package).iterdir():
            if one.name.endswith(".py"):
                found.append((f"{name}/{one.name}", _source(one)))
    return tuple(found)


def _source(one: Traversable) -> bytes:
    return one.read_bytes()


def argv(python: str = "") -> tuple[str, ...]:
    """How a host starts it: with that Python; else with the client's own, or one that is called
    like it."""
    wanted = (python,) if python else (sys.executable, f"python{version()}", "python3")
    return ("sh", NAME, *wanted)


def version() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def environment(folders: list[str]) -> dict[str, str]:
    """What the worker is told: our Python, and where our modules are."""
    return {WANTED: python_here(), PATH: ":".join(folders)}
