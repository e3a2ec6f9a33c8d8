"""Fetch one file, from the server or from a URL, into a part file, and verify it.

A part file from an earlier try is continued (Range); a wrong one is removed.
"""

import hashlib
import http.client
import os
import time
from typing import Any, Tuple

from covey.pilot.files.transfers import TIMEOUT_SECONDS, Transfers, words_of
from covey.pilot.protocol.connection import retry_after
from covey.pilot.protocol.messages import Input

CHUNK_BYTES = 1 << 18
SYNC_BYTES = 1 << 20  # smaller files are not synced: after a crash their wrong size shows
# No other schemes: this process may read files that the task must not (its own, other owners').
_URLS = ("http://", "https://")
_PASSING = (407, 408, 425, 429)  # statuses of a URL that may be different later or elsewhere


class Missing(Exception):
    """The file cannot be fetched; the message says why."""


class WrongContent(Missing):
    """The file cannot be fetched anywhere, and the bag is at fault."""


class Unreachable(Exception):
    """The file cannot be fetched now: its source does not answer, or the data was damaged."""


class SourceSilent(Unreachable):
    """The host of a URL does not answer at all."""


class Damaged(Unreachable):
    """The whole file came, but its digest is wrong."""


class TooLarge(Unreachable):
    """More bytes came than there should be."""


class Busy(Exception):
    """The server asks to wait for this many seconds."""

    def __init__(self, delay: float) -> None:
        super().__init__("busy")
        self.delay = delay


def fetch(item: Input, part: str, transfers: Transfers, most_bytes: int) -> str:
    """Returns the digest of the file. A URL may send up to `most_bytes`. Raises Missing,
    Unreachable, Busy, or OSError if this host's disk fails."""
    have, digest = _hashed(part)
    if item.url:
        _from_url(item, part, have, digest, most_bytes)
    else:
        _from_server(item, part, have, digest, transfers)
    actual = str(digest.hexdigest())
    if item.digest and actual != item.digest:
        _discard(part)
        words = "%s: the data from %s has the digest %s, not the expected one"
        raise Damaged(words % (item.path, item.url or "the server", actual))
    return actual


def _hashed(part: str) -> Tuple[int, Any]:
    """The size of the part file, and the hash of its content so far."""
    digest, size = hashlib.sha256(), 0
    try:
        with open(part, "rb") as file:
            data = file.read(CHUNK_BYTES)
            while data:
                digest.update(data)
                size += len(data)
                data = file.read(CHUNK_BYTES)
    except FileNotFoundError:
        pass
    return size, digest


def _from_server(item: Input, part: str, have: int, digest: Any, transfers: Transfers) -> None:
    if have == item.size and have:
        return
    if have > item.size:
        _discard(part)
        raise Unreachable("%s: more bytes arrived than the file has" % item.path)
    try:
        response = transfers.get(item.digest, have)
    except OSError as error:
        raise Unreachable("%s: the server does not answer: %s" % (item.path, error)) from error
    if response.status not in (200, 206):
        _refused(item, response)
    if item.digest not in (response.headers.get("ETag") or ""):
        transfers.close()
        raise Unreachable("%s: not an answer of a covey server" % item.path)
    if have and response.status == 200:
        response.close()
        transfers.close()
        _discard(part)
        raise Unreachable("%s: the server cannot continue the download" % item.path)
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and length != str(item.size - have):
        transfers.close()
        raise Unreachable("%s: the server sends a wrong length: %s" % (item.path, length))
    began = time.monotonic()
    try:
        arrived = _pour(response, part, digest, item.size - have)
    except Unreachable:
        transfers.close()  # the rest of this answer must not be read as the next one
        raise
    transfers.meter.add(arrived, time.monotonic() - began)
    if have + arrived < item.size:
        raise Unreachable("%s: the connection broke" % item.path)


def _refused(item: Input, response: http.client.HTTPResponse) -> None:
    words, delay = words_of(response), retry_after(response)
    if response.status == 404 and words:
        raise Missing("%s: the server does not have the file %s" % (item.path, item.digest))
    if response.status == 403 and words:
        raise Missing("%s: the server refuses this file to this pilot: %s" % (item.path, words))
    if delay:
        raise Busy(delay)
    raise Unreachable("%s: %s" % (item.path, words or "status %d" % response.status))


def _from_url(item: Input, part: str, have: int, digest: Any, most_bytes: int) -> None:
    if not item.url.startswith(_URLS):
        raise WrongContent("%s: %s does not begin with http:// or https://" % (item.path, item.url))
    if not item.digest and have:  # nobody knows whether it is still the same file
        _discard(part)
        raise Unreachable("%s: the download starts again" % item.path)
    import urllib.error  # needs 1.5 MB of memory, and most pilots never use it
    import urllib.request

    headers = {"Range": "bytes=%d-" % have} if have else {}
    try:
        request = urllib.request.Request(item.url, headers=headers)
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # we have all of it; the digest will be checked
            return
        words = "%s: %s answers %d %s" % (item.path, item.url, error.code, error.reason)
        refused = 400 <= error.code < 500 and error.code not in _PASSING
        raise (WrongContent if refused else Unreachable)(words) from error
    except urllib.error.URLError as error:
        words = "%s: cannot get %s: %s" % (item.path, item.url, error.reason)
        raise SourceSilent(words) from error
    except (ValueError, http.client.InvalidURL) as error:
        raise WrongContent("%s: %s: %s" % (item.path, item.url, error)) from error
    except (OSError, http.client.HTTPException) as error:
        raise SourceSilent("%s: cannot get %s: %s" % (item.path, item.url, error)) from error
    with response:
        if have and getattr(response, "status", 200) != 206:
            _discard(part)
            raise Unreachable("%s: %s cannot continue the download" % (item.path, item.url))
        length = response.headers.get("Content-Length", "")
        try:
            arrived = _pour(response, part, digest, max(0, most_bytes - have))
        except TooLarge as error:
            _discard(part)
            words = "%s: %s sends more than the %d MB that fit into this host's cache"
            raise WrongContent(words % (item.path, item.url, most_bytes >> 20)) from error
    if length.isdigit() and len(length) < 20 and arrived < int(length):
        raise Unreachable("%s: the connection to %s broke" % (item.path, item.url))


def _pour(response: Any, part: str, digest: Any, most: int) -> int:
    """Append the response to the part file; returns its size. Raises TooLarge above `most`."""
    arrived = 0
    with open(part, "ab") as file:
        while True:
            try:
                data = response.read(CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable("the connection broke: %s" % error) from error
            if not data:
                break
            if arrived + len(data) > most:
                raise TooLarge("more bytes came than were promised")
            file.write(data)
            digest.update(data)
            arrived += len(data)
        if arrived >= SYNC_BYTES:
            file.flush()
            os.fsync(file.fileno())
    return arrived


def _discard(part: str) -> None:
    try:
        os.unlink(part)
    except FileNotFoundError:
        pass
