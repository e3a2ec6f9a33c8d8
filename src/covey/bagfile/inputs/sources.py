"""The files on this machine that an input stands for: when a bag is submitted, and when its inputs
are looked up again.

A directory and a pattern stand for the files that are there now. A path with {NAME}s stands for one
file of each task.
"""

import os
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from covey.bagfile.draft.draft import SCRIPT, script_text
from covey.bagfile.format.sheet import read_sheet
from covey.bagfile.inputs.files import Finder, Found, fixed_folder, has_wildcards
from covey.core.errors import InvalidBag
from covey.core.record.model import InputSource, TaskInput

MOST_FILES = 100_000  # that all tasks get
GONE = "it is not there any more"


class LocalInputs(NamedTuple):
    """The inputs of a bag as they are on this machine now. `missing`: paths without a file, with
    the reason. Files that came from there earlier are neither in `files` nor in `emptied`."""

    files: dict[str, tuple[Found, bool]]  # for all tasks, by place; True: each task gets a copy
    own: dict[str, Found]  # for single tasks, by their keys in the manifest
    missing: dict[str, str]
    emptied: tuple[str, ...]  # earlier places in directories and patterns that have no file now


def files_of(finder: Finder, path: str, to: str) -> Iterator[tuple[str, Found]]:
    """The files that an absolute path stands for, each with its place: a file at `to`, those of
    a directory, or of a pattern, below it. Raises FileNotFoundError, InvalidBag."""
    if has_wildcards(path) and not os.path.lexists(path):
        folder = fixed_folder(path)
        for match in finder.matches(path):
            inner = os.path.join(to, os.path.relpath(match, folder))
            yield from files_of(finder, match, os.path.normpath(inner))
    elif os.path.isdir(path):
        for relative, file in finder.walk(path):
            yield os.path.normpath(os.path.join(to, relative)), file
    else:
        yield to, finder.file(path)


def script_in(path: str) -> Found:
    """The script of a bag file. Raises InvalidBag."""
    text = read_sheet(path).tree.get("script")
    if not isinstance(text, str):
        raise InvalidBag(f"{path} has no script any more")
    data = script_text(text).encode()
    return Found("", len(data), True, data)


def look(
    sources: Sequence[InputSource],
    task_inputs: Sequence[TaskInput],
    places: Iterable[str],
    keys: Collection[str],
    more_keys: bool,
) -> LocalInputs:
    """The inputs as they are now, of a bag whose inputs have these `places`, and whose tasks' own
    files have these `keys`. With `more_keys`, tasks may have files with other keys, too."""
    found = LocalInputs({}, {}, {}, ())
    finder, listed = Finder(MOST_FILES), sorted(places)
    emptied: set[str] = set()
    kept: set[str] = set()
    for source in sources:
        earlier = _at_or_below(source.to, listed)
        try:
            files = _files_of_source(finder, source)
        except (FileNotFoundError, InvalidBag) as error:
            found.missing[source.path] = str(error) if isinstance(error, InvalidBag) else GONE
            kept.update(earlier)
        else:
            found.files.update((place, (file, source.copy)) for place, file in files)
            emptied.update(earlier)
    _look_for_own(finder, task_inputs, keys, more_keys, found)
    gone = sorted(emptied - kept - found.files.keys())
    return found._replace(emptied=tuple(gone))


def _files_of_source(finder: Finder, source: InputSource) -> list[tuple[str, Found]]:
    if source.script:
        return [(SCRIPT, script_in(source.path))]
    files = list(files_of(finder, source.path, source.to))
    if not files:
        raise FileNotFoundError(source.path)
    return files


def _at_or_below(to: str, places: Sequence[str]) -> Sequence[str]:
    """Of sorted places, those of the input at `to`: the file itself, or the files below it."""
    if to == ".":
        return places
    first, last = bisect_left(places, to + "/"), bisect_left(places, to + "0")  # 0 follows /
    at = bisect_left(places, to)
    return [*places[at : at + 1 if places[at : at + 1] == [to] else at], *places[first:last]]


def _look_for_own(
    finder: Finder,
    task_inputs: Sequence[TaskInput],
    keys: Collection[str],
    more_keys: bool,
    found: LocalInputs,
) -> None:
    bases = list(dict.fromkeys(entry.base for entry in task_inputs if entry.base))
    known = dict.fromkeys(keys)
    for entry in task_inputs if more_keys else ():
        if entry.base:
            known.update(dict.fromkeys(finder.alike(entry.source, entry.base)))
    for key in known if bases else ():
        problems: dict[str, str] = {}
        for base in bases:
            path = os.path.join(base, key)
            try:
                found.own[key] = finder.file(path)
            except (FileNotFoundError, InvalidBag) as error:
                problems[path] = str(error) if isinstance(error, InvalidBag) else GONE
        if key not in found.own:
            found.missing.update(problems)
