"""A file is replaced all at once: whoever looks finds the old one or the new one, never half."""

import contextlib
import os
import tempfile
from pathlib import Path

PRIVATE, PROGRAM, PRIVATE_PROGRAM = 0o600, 0o755, 0o700


def replace(path: Path, data: bytes, mode: int = PRIVATE, *, durable: bool = True) -> None:
    """Raises OSError, and leaves nothing behind then."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if mode != PRIVATE:  # as it was made
            os.chmod(name, mode)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
