"""Proof that a person on this machine submitted these paths.

`covey retry --refresh` sends the input files of a bag again, from the paths in the server's record.
Without a proof, the owner of a server could ask for any file that the person can read. So the
client seals the paths with a key that never leaves the person's configuration directory. A remote
server gets only files whose paths are sealed.
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
    """The seal of the paths of a bag's inputs. `keys` are the keys of files of single tasks. Empty
    if there are no paths, or no key can be kept: then nothing can be sent again."""
    if not sources and not task_inputs:
        return ""
    key = _own_key(place or default_place())
    paths = [
        [[source.path, source.to, source.copy, source.script] for source in sources],
        [[entry.source, entry.path, entry.copy, entry.base] for entry in task_inputs],
        sorted(keys),
    ]
    return hmac.new(key, msgspec.json.encode(paths), hashlib.sha256).hexdigest() if key else ""


def is_sealed(
    candidate: str,
    sources: Sequence[InputSource],
    task_inputs: Sequence[TaskInput],
    keys: Iterable[str],
    place: Path | None = None,
) -> bool:
    """Whether this is our seal of these paths."""
    expected = seal(sources, task_inputs, keys, place)
    return bool(expected) and hmac.compare_digest(expected.encode(), candidate.encode())


def _own_key(place: Path) -> bytes:
    """The person's key, made when it is first needed; empty if it cannot be kept."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        _make(place)
    try:
        key = place.read_bytes()
    except OSError:
        return b""
    return key if len(key) == KEY_BYTES else b""


def _make(place: Path) -> None:
    """Make the key. If several processes do so at once, all use the key of the first."""
    if place.exists():
        return
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-")
    try:
        with open(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        os.link(name, place)
    finally:
        os.unlink(name)
