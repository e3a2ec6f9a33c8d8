"""Proof that a person of this machine named these paths.

Inputs of a bag can be sent once more from the paths that its record names (`covey retry
--refresh`). The record is the server's. Without proof, whoever rules a server could have any file
sent to it that a person can read. So the client seals the paths with a key of its own, which never
leaves the person's configuration directory. To a server elsewhere, only what was sealed is sent
again.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from covey.core.record.model import InputSource, TaskInput

KEY_BYTES = 32


def default_place() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "covey" / "inputs.key"


def seal(
    sources: Sequence[InputSource],
    task_inputs: Sequence[TaskInput],
    keys: Iterable[str],
    place: Path | None = None,
) -> str:
    """Of where the inputs of a bag came from; `keys` are those of the files of single tasks. Empty
    if there is nothing to seal, or no place for a key: then nothing can be sent again."""
    if not sources and not task_inputs:
        return ""
    key = _own_key(place or default_place())
    paths = [
        [[one.path, one.to, one.copy, one.script] for one in sources],
        [[one.source, one.path, one.copy, one.base] for one in task_inputs],
        sorted(keys),
    ]
    return hmac.new(key, msgspec.json.encode(paths), hashlib.sha256).hexdigest() if key else ""


def is_sealed(
    found: str,
    sources: Sequence[InputSource],
    task_inputs: Sequence[TaskInput],
    keys: Iterable[str],
    place: Path | None = None,
) -> bool:
    """Whether this seal is ours, and of these paths."""
    expected = seal(sources, task_inputs, keys, place)
    return bool(expected) and hmac.compare_digest(expected.encode(), found.encode())


def _own_key(place: Path) -> bytes:
    """Made when it is first needed; empty if there is no place for it."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        _make(place)
    try:
        key = place.read_bytes()
    except OSError:
        return b""
    return key if len(key) == KEY_BYTES else b""


def _make(place: Path) -> None:
    """Of several that do so at once, one makes the key of all."""
    if place.exists():
        return
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-")
    try:
        with open(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        os.link(name, place)
    finally:
        os.unlink(name)
