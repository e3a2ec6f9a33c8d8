"""The certificate authority that a setting names."""

import os
from pathlib import Path

from covey.core.errors import BadConfig
from covey.pilot.protocol.connection import context_for


def read_authority(setting: str, name: str) -> str:
    """The file's text (PEM); empty without a name. Raises BadConfig, which names the setting."""
    if not name:
        return ""
    path = Path(os.path.abspath(os.path.expanduser(name)))
    try:
        pem = path.read_text("ascii")
        context_for(pem)
    except OSError as error:
        raise BadConfig(f"{setting} {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadConfig(f"{setting} {path} is not a PEM certificate") from error
    return pem
