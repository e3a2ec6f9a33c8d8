"""From gathered files to a submitted bag: upload the files that the server lacks, then submit."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from covey.bagfile import Found, Gathered
from covey.client.client import Client, Submitted, submission_key, with_seal
from covey.client.embedded import is_held
from covey.client.upload import Upload
from covey.core.errors import ServerAway
from covey.core.record.model import Blob
from covey.frontend import bag_places, formats, terminal
from covey.frontend.terminal import say
from covey.whoami import user

if TYPE_CHECKING:
    from covey.config import Config

LINE_SECONDS = 0.1


def send(
    config: "Config", gathered: Gathered, slots: int | None, key: str | None = None
) -> tuple[Client, Submitted]:
    """Submit to the running server, or start one. If the server ends meanwhile, submit again to a
    new server: both requests have the same key, so there is only one bag."""
    key = submission_key(key)
    options = server_options(slots)
    running = bag_places.running_client(config)
    client = running or bag_places.client(config, options)
    if running is not None and slots is not None:
        _tell_slots(running, slots)
    try:
        return client, submit(client, gathered, key)
    except ServerAway:
        if config.server or is_held(config.directory):
            raise
    client = bag_places.client(config, options)
    return client, submit(client, gathered, key)


def submit(client: Client, gathered: Gathered, key: str, *, quiet: bool = False) -> Submitted:
    """Upload the files that the server lacks, and submit the bag."""
    spec = with_seal(gathered.complete(upload(client, gathered.uploads, quiet=quiet)))
    return client.submit(msgspec.structs.replace(spec, key=key, owner=user()))


def upload(client: Client, files: Iterable[Found], *, quiet: bool = False) -> dict[Found, Blob]:
    """Upload the files that the server lacks. Returns the blob of each file."""
    line = _Line(quiet)
    sending = Upload(client, line.progress)
    blobs = add_all(sending, files)
    if blobs:
        _send(sending, line)
    return blobs


def upload_known(client: Client, files: Mapping[Blob, Path | bytes]) -> None:
    """Upload files whose digests are known already."""
    line = _Line()
    sending = Upload(client, line.progress)
    for blob, source in files.items():
        sending.add_known(blob, source)
    if files:
        _send(sending, line)


def _send(sending: Upload, line: "_Line") -> None:
    sent = sending.send()
    line.clear()
    if sent and not line.quiet:
        say(f"uploaded {formats.size(sent)}")


def add_all(sending: Upload, files: Iterable[Found]) -> dict[Found, Blob]:
    return {file: sending.add(file.data or Path(file.path)) for file in files}


class _Line:
    """The progress of an upload on one line, if standard error is a terminal."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._shown = False
        self._last = 0.0
        self._terminal = sys.stderr.isatty() and not quiet

    def progress(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._terminal and now - self._last > LINE_SECONDS:
            self._last, self._shown = now, True
            terminal.redraw(f"covey: uploading {formats.size(done)} of {formats.size(total)}")

    def clear(self) -> None:
        if self._shown:
            terminal.redraw("")


def server_options(slots: int | None) -> Sequence[str]:
    return () if slots is None else ("--slots", str(slots))


def _tell_slots(client: Client, slots: int) -> None:
    have = client.server().slots
    if have != slots:
        now = formats.count(have, "slot")
        say(f"note: the server runs already, with {now}; for --slots, 'covey stop' it first")
