"""Checks of bags: whether a bag can run as it is written. Errors are texts for its author."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from covey.core.errors import InvalidBag
from covey.core.match import bag_policy
from covey.core.record import call_files, task_classes
from covey.core.record.broker_rules import BrokerRules
from covey.core.record.model import BAG_RANGES, BagSpec, Blob, Segment
from covey.core.record.task_numbers import check_segment, names_in
from covey.core.values.placeholders import filler
from covey.core.values.space import Axis, Values, shown
from covey.pilot.calls.call_records import BY_FILE, CALL, MOST_CALL, MOST_FILE
from covey.pilot.files.output_patterns import MOST_PATTERNS, InvalidPattern, Pattern

MOST_INPUTS = 100_000
MOST_MANIFEST = 1_000_000
MOST_TEXT = 1 << 20  # of a setup, a check, notes
MOST_COMMAND = 8 << 20  # characters of the command and the environment: no system takes more
MOST_SHORT_TEXT = 4096  # of a name, an owner, a key, a directory
MOST_LABELS = 1000
MOST_TASK_INPUTS = 10_000
LARGEST_FILE = 2**53  # bytes

MOST_CALL_TEXT = (MOST_CALL + 2) // 3 * 4
_PLACES = ("{" + CALL + "}", "{task}", "{bag}")

URLS = ("http://", "https://")  # of inputs that hosts fetch
_HEX = frozenset("0123456789abcdef")


def check_spec(spec: BagSpec) -> None:
    """Raise InvalidBag for a mistake in any part of it."""
    if not spec.argv or not spec.argv[0]:
        raise InvalidBag("a bag needs a command")
    if any("\0" in word for word in spec.argv):
        raise InvalidBag("a command cannot contain NUL characters")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidBag(
                f"environment variable {shown(name)!r} is malformed: its name must not be empty or "
                "contain '=', and neither name nor value may contain NUL characters"
            )
    _check_lengths(spec)
    segment = Segment(space=spec.space, rows=spec.rows)
    check_segment(segment, may_be_empty=spec.open)
    task_classes.check(spec, segment)
    _check_ranges(spec)
    check_files(spec)
    _check_patterns(spec, names_in(segment))
    bag_policy.check(spec.policy, spec, segment)
    if spec.calls:
        _check_calls(spec, segment)
    for what, text in (("setup", spec.setup), ("check", spec.check), ("notes", spec.notes)):
        if len(text) > MOST_TEXT or "\0" in text:
            raise InvalidBag(f"{what} must have at most {MOST_TEXT:,} characters, and no NUL")
    if any(not 0 <= code <= 255 for code in spec.ok_codes) or not spec.ok_codes:
        raise InvalidBag(
            "exit statuses must be between 0 and 255, and at least one must mean success"
        )


def check_broker(spec: BagSpec, rules: BrokerRules) -> None:
    """Raise InvalidBag if it names a broker that the server does not have."""
    if spec.broker and spec.broker not in rules.names():
        raise InvalidBag(rules.unknown(shown(spec.broker)))


def _check_lengths(spec: BagSpec) -> None:
    variables = sum(len(name) + len(value) for name, value in spec.env.items())
    if sum(map(len, spec.argv)) + variables > MOST_COMMAND:
        raise InvalidBag(
            f"the command and its environment have more than {MOST_COMMAND:,} characters: put "
            "long parts into a file"
        )
    for what, text in (
        ("name", spec.name),
        ("owner", spec.owner),
        ("key", spec.key),
        ("directory", spec.chdir),
        ("host", spec.sources_host),
        ("seal", spec.sources_seal),
    ):
        if len(text) > MOST_SHORT_TEXT or "\0" in text:
            raise InvalidBag(
                f"the {what} of a bag has at most {MOST_SHORT_TEXT:,} characters, and no NUL"
            )
    labels = sum(len(name) + len(value) for name, value in spec.labels.items())
    if len(spec.labels) > MOST_LABELS or labels > MOST_TEXT:
        raise InvalidBag(
            f"a bag has at most {MOST_LABELS:,} labels, of {MOST_TEXT:,} characters in all"
        )
    if len(spec.task_inputs) > MOST_TASK_INPUTS:
        raise InvalidBag(f"a bag has at most {MOST_TASK_INPUTS:,} inputs of single tasks")


def _check_calls(spec: BagSpec, segment: Segment) -> None:
    """Raise InvalidBag for parts that calls cannot have: one worker does all calls, and of each
    task it gets only the call."""
    for what, part in (
        ("a check", spec.check),
        ("outputs", spec.outputs or spec.optional_outputs),
        ("inputs of single tasks", spec.task_inputs or spec.manifest),
        ("rows of a file", spec.rows is not None),
        ("parameters in the environment", spec.export),
        ("exit statuses of its own", spec.ok_codes != (0,)),
    ):
        if part:
            raise InvalidBag(f"a bag of calls cannot have {what}: one process does all its calls")
    for word in spec.argv:
        if any(place in word for place in _PLACES):
            raise InvalidBag(
                f"one process does all calls, so the command cannot contain {shown(word)!r}"
            )
    check_call_segment(segment, spec.chdir)


def check_call_segment(segment: Segment, chdir: str = "") -> None:
    """Raise InvalidBag unless its tasks are calls: each is base64 text that a worker reads, or a
    reference to the file that holds the call."""
    space = segment.space
    if not isinstance(space, Axis) or space.name != CALL or segment.rows is not None:
        raise InvalidBag(f"the tasks of a bag of calls must have exactly one parameter, {CALL!r}")
    if not isinstance(space.values, Values):
        raise InvalidBag("calls must be listed one by one")
    for call in space.values.items:
        if not isinstance(call, str):
            raise InvalidBag(f"a call must be base64 text, not {shown(repr(call))}")
        if len(call) > MOST_CALL_TEXT:
            raise InvalidBag(
                f"a call has {len(call) // 4 * 3:,} bytes; at most {MOST_CALL:,} are "
                "allowed: put large data into files"
            )
        if call[:1] == BY_FILE:
            _check_call_file(call, chdir)


def _check_call_file(call: str, chdir: str) -> None:
    blob = call_files.file_of(call)
    if blob is None:
        raise InvalidBag(
            f"a call must be base64 or {BY_FILE}DIGEST:SIZE of a file, not {call[:100]!r}"
        )
    if blob.size > MOST_FILE:
        raise InvalidBag(f"a call has {blob.size:,} bytes; at most {MOST_FILE:,} are allowed")
    if chdir:
        raise InvalidBag("large calls are placed into the worker's own directory: leave out chdir")


def _check_ranges(spec: BagSpec) -> None:
    for name, (low, high) in BAG_RANGES.items():
        if not low <= getattr(spec, name) <= high:
            raise InvalidBag(
                f"{name} must be between {low:,} and {high:,}, not {getattr(spec, name)}"
            )


def check_files(spec: BagSpec) -> None:
    """Raise InvalidBag unless the inputs can be placed into a task's directory."""
    check_files_count(max(len(spec.inputs), len(spec.sources)), len(spec.manifest))
    if (spec.inputs or spec.task_inputs) and spec.chdir:
        raise InvalidBag("inputs are placed into a task's own directory: leave out chdir")
    for placed in spec.inputs:
        path, url = placed.path, placed.url
        _check_path("input", path)
        if (placed.blob is None) == (not url):
            raise InvalidBag(f"input {shown(path)!r} needs either a file or a URL")
        if url and not url.startswith(URLS):
            raise InvalidBag(
                f"input {shown(path)!r}: {shown(url)!r} does not begin with http:// or https://"
            )
        if placed.blob is not None:
            _check_blob(path, placed.blob)
        if placed.digest and not is_digest(placed.digest):
            raise InvalidBag(
                f"input {shown(path)!r}: {shown(placed.digest)!r} is not a SHA-256 digest"
            )
    for task_input in spec.task_inputs:
        _check_path("input", task_input.path)
        _check_source(task_input.base)
    for source in spec.sources:
        if source.to != ".":
            _check_path("input", source.to)
        _check_source(source.path)
    for path, blob in spec.manifest.items():
        _check_blob(path, blob)


def check_files_count(inputs: int, own: int) -> None:
    if inputs > MOST_INPUTS or own > MOST_MANIFEST:
        raise InvalidBag(
            f"a bag has at most {MOST_INPUTS:,} inputs, and {MOST_MANIFEST:,} of single tasks"
        )


def _check_patterns(spec: BagSpec, names: Sequence[str]) -> None:
    patterns = (*spec.outputs, *spec.optional_outputs)
    if len(patterns) > MOST_PATTERNS:
        raise InvalidBag(
            f"{len(patterns):,} patterns of outputs; at most {MOST_PATTERNS:,} are allowed"
        )
    for pattern in patterns:
        problem = pattern_problem(pattern, names)
        if problem:
            raise InvalidBag(problem)


def pattern_problem(pattern: str, names: Sequence[str]) -> str:
    """What is wrong with a pattern of outputs for all values; "" if nothing is. With the values of
    a task it is checked on the task's host, by the same code, before the task starts."""
    fill = filler(pattern, names)
    problem = ""
    for letter in ("0", "z"):  # values may begin or end a range, as in [{n}-9]
        try:
            Pattern(fill([letter] * len(names), 0, 0))
            return ""
        except InvalidPattern as error:
            problem = problem or str(error)
    return problem


def _check_path(what: str, path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise InvalidBag(f"{what} {shown(path)!r} must be a path inside the task's directory")


def _check_source(path: str) -> None:
    if len(path) > MOST_SHORT_TEXT or "\0" in path:
        raise InvalidBag(
            f"the path of an input has at most {MOST_SHORT_TEXT:,} characters, and no NUL"
        )


def _check_blob(path: str, blob: Blob) -> None:
    if not is_digest(blob.digest) or not 0 <= blob.size <= LARGEST_FILE:
        raise InvalidBag(f"input {shown(path)!r}: {shown(blob.digest)!r} is not a SHA-256 digest")


def is_digest(text: str) -> bool:
    return len(text) == 64 and _HEX.issuperset(text)
