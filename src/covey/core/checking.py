"""Whether a bag can be run as it is written, with words for its author if not."""

from pathlib import PurePosixPath

from covey.core import calls, classes, governing
from covey.core.errors import InvalidBag
from covey.core.model import BagSpec, Blob, Segment
from covey.core.numbering import check_segment, names_in
from covey.core.space import Axis, Values
from covey.pilot.calling import BY_FILE, CALL, MOST_CALL, MOST_FILE

MOST_RETRIES = 1000
MOST_INPUTS = 100_000
MOST_MANIFEST = 1_000_000
MOST_LOG_KB = 1024  # two streams, escaped, must fit into a sync
MOST_TEXT = 1 << 20  # of a setup, a check, notes

MOST_CALL_TEXT = (MOST_CALL + 2) // 3 * 4
_PLACES = ("{" + CALL + "}", "{task}", "{bag}")

URLS = ("http://", "https://")  # of what hosts fetch by themselves
_HEX = frozenset("0123456789abcdef")


def check_spec(spec: BagSpec) -> None:
    """Raise InvalidBag unless every part of it makes sense."""
    if not spec.argv or not spec.argv[0]:
        raise InvalidBag("a bag needs a command")
    if any("\0" in word for word in spec.argv):
        raise InvalidBag("a command cannot contain NUL characters")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidBag(f"environment variable {name!r} is malformed")
    segment = Segment(space=spec.space, rows=spec.rows)
    check_segment(segment, may_be_empty=spec.open)
    classes.check(spec, names_in(segment))
    _check_chances(spec)
    _check_files(spec)
    governing.check(spec.policy, spec, segment)
    if spec.calls:
        _check_calls(spec, segment)
    for what, text in (("setup", spec.setup), ("check", spec.check), ("notes", spec.notes)):
        if len(text) > MOST_TEXT or "\0" in text:
            raise InvalidBag(f"{what} is too long, or has NUL characters in it")
    if any(not 0 <= code <= 255 for code in spec.ok_codes) or not spec.ok_codes:
        raise InvalidBag("exit statuses lie between 0 and 255, and one must be good")


def _check_calls(spec: BagSpec, segment: Segment) -> None:
    """A worker that stays knows nothing of single tasks but their calls."""
    for what, given in (
        ("a check", spec.check),
        ("outputs", spec.outputs or spec.optional_outputs),
        ("inputs of single tasks", spec.task_inputs or spec.manifest),
        ("rows of a file", spec.rows is not None),
        ("parameters in the environment", spec.export),
        ("exit statuses of its own", spec.ok_codes != (0,)),
    ):
        if given:
            raise InvalidBag(f"a bag of calls cannot have {what}: one process does all its calls")
    for word in spec.argv:
        if any(place in word for place in _PLACES):
            raise InvalidBag(f"one process does all calls: {word!r} is the same for each of them")
    check_call_segment(segment, spec.chdir)


def check_call_segment(segment: Segment, chdir: str = "") -> None:
    """Raise InvalidBag unless its tasks are calls: of each, base64 of what a worker reads, or the
    file that holds it."""
    space = segment.space
    if not isinstance(space, Axis) or space.name != CALL or segment.rows is not None:
        raise InvalidBag(f"the tasks of a bag of calls have one parameter, {CALL!r}, and no other")
    if not isinstance(space.values, Values):
        raise InvalidBag("calls are listed one by one")
    for call in space.values.items:
        if not isinstance(call, str):
            raise InvalidBag(f"a call is base64 text, not {call!r}")
        if len(call) > MOST_CALL_TEXT:
            raise InvalidBag(
                f"a call has {len(call) // 4 * 3:,} bytes, more than the {MOST_CALL:,} that are "
                "possible: put what is large into files"
            )
        if call[:1] == BY_FILE:
            _check_call_file(call, chdir)


def _check_call_file(call: str, chdir: str) -> None:
    blob = calls.file_of(call)
    if blob is None:
        raise InvalidBag(f"a call is base64 or {BY_FILE}DIGEST:SIZE of a file, not {call[:100]!r}")
    if blob.size > MOST_FILE:
        raise InvalidBag(f"a call has {blob.size:,} bytes, more than {MOST_FILE:,}")
    if chdir:
        raise InvalidBag("large calls are placed into the worker's own directory: leave out chdir")


def _check_chances(spec: BagSpec) -> None:
    if not 0 <= spec.retries <= MOST_RETRIES:
        raise InvalidBag(f"retries must be between 0 and {MOST_RETRIES}, not {spec.retries}")
    if not 0 <= spec.overtimes <= 100:
        raise InvalidBag(f"overtimes must be between 0 and 100, not {spec.overtimes}")
    for what, factor in (("memory", spec.grow_memory), ("time", spec.grow_time)):
        if not 1.0 <= factor <= 100.0:
            raise InvalidBag(f"{what} may grow 1 to 100 times with each retry, not {factor}")
    if not 0 <= spec.breaker <= 10**9:
        raise InvalidBag(f"breaker must be 0 (never) or a number of failures, not {spec.breaker}")
    if not 1 <= spec.log_kb <= MOST_LOG_KB:
        raise InvalidBag(f"logs keep 1 to {MOST_LOG_KB} kB of a stream, not {spec.log_kb}")
    if not 0 <= spec.output_mb <= 10**7:
        raise InvalidBag(f"an output limit of {spec.output_mb} MB makes no sense")
    if not 0 < spec.setup_seconds < 10**7:
        raise InvalidBag(f"a setup of {spec.setup_seconds} s makes no sense")


def _check_files(spec: BagSpec) -> None:
    if len(spec.inputs) > MOST_INPUTS or len(spec.manifest) > MOST_MANIFEST:
        raise InvalidBag(f"at most {MOST_INPUTS:,} inputs, and {MOST_MANIFEST:,} of single tasks")
    if (spec.inputs or spec.task_inputs) and spec.chdir:
        raise InvalidBag("inputs are placed into a task's own directory: leave out chdir")
    for one in spec.inputs:
        _check_path("input", one.path)
        if (one.blob is None) == (not one.url):
            raise InvalidBag(f"input {one.path!r} needs either a file or a URL")
        if one.url and not one.url.startswith(URLS):
            raise InvalidBag(f"input {one.path!r}: {one.url!r} is not http:// or https://")
        if one.blob is not None:
            _check_blob(one.path, one.blob)
        if one.digest and not is_digest(one.digest):
            raise InvalidBag(f"input {one.path!r}: {one.digest!r} is no SHA-256")
    for task_input in spec.task_inputs:
        _check_path("input", task_input.path)
    for path, blob in spec.manifest.items():
        _check_blob(path, blob)
    for pattern in (*spec.outputs, *spec.optional_outputs):
        _check_path("output", pattern)


def _check_path(what: str, path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise InvalidBag(f"{what} {path!r} must be a path inside the task's directory")


def _check_blob(path: str, blob: Blob) -> None:
    if not is_digest(blob.digest) or blob.size < 0:
        raise InvalidBag(f"input {path!r}: {blob.digest!r} is no SHA-256 of a file")


def is_digest(text: str) -> bool:
    return len(text) == 64 and _HEX.issuperset(text)
