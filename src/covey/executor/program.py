"""The worker as one file: `covey.worker`, our cloudpickle, the initializer and the program's own
modules, zipped, after a few lines of shell. Equal parts give equal bytes, so that a server which
has the file already does not get it again."""

import functools
import io
import sys
import zipfile
from collections.abc import Mapping
from importlib import resources

from covey.worker.main import INITIALIZER, MODULES, PATH, WANTED, python_here

NAME = "covey-worker.pyz"
MAIN = "from covey_worker.main import main\n\nmain()\n"
PARTS = {"covey.worker": "covey_worker", "cloudpickle": "cloudpickle"}
FIRST_DAY = (1980, 1, 1, 0, 0, 0)
# What a shell does with the file: start it with the first of the given Pythons that is there. The
# client's own path means nothing on other hosts. Python finds the archive after this text.
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
    archive = io.BytesIO()
    archive.write(START)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in sorted(entries.items()):
            file.writestr(zipfile.ZipInfo(name, FIRST_DAY), content, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


@functools.cache
def _parts() -> tuple[tuple[str, bytes], ...]:
    parts = [("__main__.py", MAIN.encode())]
    for package, name in PARTS.items():
        for source in resources.files(package).iterdir():
            if source.name.endswith(".py"):
                parts.append((f"{name}/{source.name}", source.read_bytes()))
    return tuple(parts)


def argv(python: str = "") -> tuple[str, ...]:
    """The command that starts the worker on a host: with that Python; else with the client's own,
    or one with the same name."""
    wanted = (python,) if python else (sys.executable, f"python{version()}", "python3")
    return ("sh", NAME, *wanted)


def version() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def environment(folders: list[str]) -> dict[str, str]:
    """The worker's variables: the client's Python, and the folders of its modules."""
    return {WANTED: python_here(), PATH: ":".join(folders)}
