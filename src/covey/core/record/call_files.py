"""Calls that travel as files. What stands in the place of such a call names its file; it always has
the same length, with digits enough for the largest, so that no pilot takes it for base64:
`covey.pilot.calls.call_records` says why.
"""

import re
from collections.abc import Iterator

from covey.core.record.model import Blob, Segment
from covey.core.values.space import Axis, Scalar, Values
from covey.pilot.calls.call_records import BY_FILE, CALL

_REFERENCE = re.compile(BY_FILE + "([0-9a-f]{64}):([0-9]{9})")


def reference(blob: Blob) -> str:
    return f"{BY_FILE}{blob.digest}:{blob.size:09}"


def file_of(call: Scalar) -> Blob | None:
    """The file that holds the call; none if the call is here itself."""
    if not isinstance(call, str) or call[:1] != BY_FILE:
        return None
    found = _REFERENCE.fullmatch(call)
    return None if found is None else Blob(found[1], int(found[2]))


def files_in(segment: Segment) -> list[Blob]:
    """Of the calls in a segment of a bag of calls."""
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
