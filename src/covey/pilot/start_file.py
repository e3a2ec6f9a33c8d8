"""The start file: the options of a pilot, including its secret, which must not stay on disk.

The rule: after the file is read, the secret is on no disk, because the file is removed. A start
file of the local site names its server's address file; such a file stays without the secret,
because the site finds its pilots by its path. A pilot that renews itself writes the file again for
its successor.
"""

import json
import os
import tempfile
from typing import Any, Dict


def read(path: str) -> Dict[str, Any]:
    """The content of the file. Raises OSError and ValueError."""
    with open(path, encoding="utf-8") as file:
        fields = json.load(file)
    if not isinstance(fields, dict):
        raise ValueError("%s: not a start file" % path)
    return fields


def take(path: str) -> Dict[str, Any]:
    """Read the file and remove the secret from disk; for the pilot that the file is meant for."""
    fields = read(path)
    try:
        if fields.get("address_file"):
            write(path, dict(fields, secret=""))
        else:
            os.unlink(path)
    except OSError:
        pass  # the place is read-only: whoever put the file there must remove it
    return fields


def write(path: str, fields: Dict[str, Any]) -> None:
    """Write the file at once, readable only for its owner. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".start-")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(fields, file)
        os.rename(name, path)
    except BaseException:
        os.unlink(name)
        raise
