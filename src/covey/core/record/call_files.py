"""Calls that travel as files. A reference to the file takes the place of such a call. All
references have the same length, so that no pilot takes one for base64
(`covey.pilot.calls.call_records`)."""

import re
from collections.abc import Iterator

from covey.core.record.model import Blob, Segment
from covey.core.values.space import Axis, Scalar, Values
from covey.pilot.calls.call_records import BY_FILE, CALL

_REFERENCE = re.compile(BY_FILE + "([0-9a-f]{64}):([0-9]{9})")


def reference(blob: Blob) -> str:
    return f"{BY_FILE}{blob.digest}:{blob.size:09}"


def file_of(call: Scalar) -> Blob | None:
    """The file that holds the call; None if this is the call itself."""
    if not isinstance(call, str) or call[:1] != BY_FILE:
        return None
    match = _REFERENCE.fullmatch(call)
    return None if match is None else Blob(match[1], int(match[2]))


def files_in(segment: Segment) -> list[Blob]:
    """The files of the calls in a segment of a bag of calls."""
    if not has_files(segment):
        return []
    return [blob for blob in file_of_each(segment) if blob is not None]


def file_of_each(segment: Segment) -> Iterator[Blob | None]:
    return map(file_of, _listed(segment))


def has_files(segment: Segment) -> bool:
    return any(isinstance(call, str) and call[:1] == BY_FILE for call in _listed(segment))


def _listed(segment: Segment) -> tuple[Scalar, ...]:
    space = segment.space
    if isinstance(space, Axis) and space.name == CALL and isinstance(space.values, Values):
        return space.values.items
    return ()
