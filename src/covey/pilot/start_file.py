"""The start file: what a pilot is told, among it its secret, which nobody is to find there later.

The rule: once it is read, the secret is on no disk. The file is removed. One of the local site
names the address file of its server; of that one the path stays (the site finds its pilots by it)
and the secret goes. A pilot that renews itself writes the file anew for its successor.
"""

import json
import os
import tempfile
from typing import Any, Dict


def read(path: str) -> Dict[str, Any]:
    """What it says. Raises OSError and ValueError."""
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    if not isinstance(found, dict):
        raise ValueError("%s: not a start file" % path)
    return found


def take(path: str) -> Dict[str, Any]:
    """The same, for the pilot that it is for."""
    found = read(path)
    try:
        if found.get("address_file"):
            write(path, dict(found, secret=""))
        else:
            os.unlink(path)
    except OSError:
        pass  # a read-only place: whoever put it there has to see to it
    return found


def write(path: str, found: Dict[str, Any]) -> None:
    """For its owner's eyes, all at once. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".start-")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.rename(name, path)
    except BaseException:
        os.unlink(name)
        raise
