"""The options of a pilot."""

from typing import Any, Dict, List, NamedTuple, Union

from covey.pilot.protocol.request_threads import Address

CACHE_MB = 10240


class Options(NamedTuple):
    """`patience_seconds`: how long to stay while the server is away and ends are undelivered; a
    tenth of it if there is nothing to deliver. `memory_mb`, `disk_mb`: what all tasks together may
    use; 0 for all there is. `gpus`: their ids, `none`, or empty for all that are found. `cache`:
    where files are kept for all pilots of this host, up to `cache_mb`. `until`: when the site job
    ends, in seconds since 1970.

    `shared`: tasks of several owners run here, each in a sandbox; `shows` are directories that they
    may read besides the system. `setup` and `check` are shell commands of the site, run in this
    order before any task, each for up to `check_seconds`. `reach_seconds`: how long to wait at the
    start for a server that does not answer. `start_file`, `address_file`: where the options came
    from. `discard`: files to remove once the pilot runs."""

    address: Address
    secret: str
    directory: str
    slots: int
    site: str = "hand"
    job: str = ""
    version: str = ""
    drain_seconds: float = 20.0
    patience_seconds: float = 86400.0
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: Union[str, List[str]] = ""
    cache: str = ""
    cache_mb: int = CACHE_MB
    until: float = 0.0
    shared: bool = False
    shows: List[str] = []
    setup: str = ""
    check: str = ""
    check_seconds: float = 300.0
    reach_seconds: float = 60.0
    start_file: str = ""
    address_file: str = ""
    discard: List[str] = []


def known_fields(fields: Dict[str, Any]) -> Dict[str, Any]:
    """The fields that this version of the pilot has."""
    return {name: value for name, value in fields.items() if name in Options._fields}
