"""Makes sure that the server will take what a pilot sends, whatever a task has done.

The limits themselves stand in `messages`, and the server checks the same ones. Here the pilot
mends what would be over them, before it sends it: a text is cut, a tag is dropped, and an end
whose files cannot be told is a failure that says why. Nothing is mended without words about it.
"""

import json
from typing import Dict, List, Tuple

from covey.pilot.protocol.messages import (
    LONGEST_PATH,
    LONGEST_TAG,
    MOST_END_BYTES,
    MOST_FILES,
    MOST_LOG_COMMAS,
    MOST_MESSAGE,
    MOST_RESULT,
    MOST_TAG_CHARACTERS,
    MOST_TAGS,
    OK,
    OUTPUT,
    End,
    OutputFile,
)

_MOST_ESCAPED = 12  # bytes that one character takes in JSON
_FILE_BYTES = 300  # all that JSON has of a file, but for its path and its data
SMALL = MOST_END_BYTES // _MOST_ESCAPED - 1000  # characters that fit, whatever they are
_SHORT_LOG = 100_000  # characters
_CUT = " […]"
_SHOWN = 5
_SHOWN_CHARACTERS = 60  # of a name


def is_unicode(text: str) -> bool:
    """Not so are parts of a file name that is not UTF-8, say."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def clean(text: str, most: int) -> str:
    """The text in at most so many characters; what is not Unicode becomes an escape."""
    if not is_unicode(text):
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


# -- ends ------------------------------------------------------------------------------------


def allowed_end(end: End) -> End:
    """The end itself or, if the server would refuse that, one that it takes. Only texts and files
    come from tasks; numbers are the pilot's own."""
    size, files = len(end.stdout) + len(end.stderr) + len(end.result), end.files
    if not end.message and not files and size < MOST_LOG_COMMAS and len(end.result) <= MOST_RESULT:
        return end
    if end.stdout.count(",") + end.stderr.count(",") > MOST_LOG_COMMAS:
        end = _with_short_logs(end)
    message = clean(end.message, MOST_MESSAGE)
    if message != end.message:
        end = end._replace(message=message)
    if len(end.result) > MOST_RESULT:
        words = "its result has more than %d characters" % MOST_RESULT
        end = _without_files(end, words)._replace(result="")
    problem = _files_problem(files)
    size += len(end.message) + sum(len(one.path) + len(one.data) + _FILE_BYTES for one in files)
    if not problem and size >= SMALL:
        taken = len(json.dumps(end))
        if taken > MOST_END_BYTES:
            words = "its result, with the names of its %d files, takes %d bytes in a message"
            problem = (words + "; at most %d are allowed") % (len(files), taken, MOST_END_BYTES)
    return _without_files(end, problem) if problem else end


def _with_short_logs(end: End) -> End:
    words = "its output was cut: it has more commas than a message may have (%d)" % MOST_LOG_COMMAS
    message = clean("%s; %s" % (end.message, words) if end.message else words, MOST_MESSAGE)
    stdout, stderr = end.stdout[:_SHORT_LOG], end.stderr[:_SHORT_LOG]
    return end._replace(stdout=stdout, stderr=stderr, message=message)


def refused_end(end: End, words: str) -> End:
    """For an end that the server has refused all the same: one that says so, and little else."""
    said = clean("the server refused the report of this attempt: " + words, MOST_MESSAGE)
    return End(*end[:4], outcome=_failed(end.outcome), message=said)


def _failed(outcome: str) -> str:
    """A task that did well has not, if its results cannot be told."""
    return OUTPUT if outcome == OK else outcome


def _without_files(end: End, words: str) -> End:
    message = "%s; %s" % (end.message, words) if end.message else words
    message = clean(message, MOST_MESSAGE)
    return end._replace(outcome=_failed(end.outcome), message=message, files=[])


def _files_problem(files: List[OutputFile]) -> str:
    if len(files) > MOST_FILES:
        words = "it returns %d files; at most %d are allowed (put them into an archive)"
        return words % (len(files), MOST_FILES)
    for file in files:
        path = file.path
        if len(path) > LONGEST_PATH:
            words = "the path of output %s has more than %d characters"
            return words % (clean(path, _SHOWN_CHARACTERS), LONGEST_PATH)
        if not is_unicode(path):
            shown = clean(path, _SHOWN_CHARACTERS)
            return "the name of output %s is not UTF-8: the task must use another name" % shown
    return ""


# -- tags ------------------------------------------------------------------------------------


def allowed_tags(tags: Dict[str, str]) -> Tuple[Dict[str, str], List[str]]:
    """The tags that the server takes, and the names of those that were dropped or cut. Of too
    many, the first ones go."""
    found: Dict[str, str] = {}
    mended: List[str] = []
    room = MOST_TAG_CHARACTERS
    for name, value in reversed(list(tags.items())):
        text = clean(value, LONGEST_TAG)
        size = len(name) + len(text)
        good = len(name) <= LONGEST_TAG and is_unicode(name)
        if not good or len(found) >= MOST_TAGS or size > room:
            mended.append(name)
            continue
        if text != value:
            mended.append(name)
        room -= size
        found[name] = text
    return dict(reversed(list(found.items()))), mended[::-1]


def told(names: List[str], naming: bool = True) -> str:
    """What people read about tags that were dropped or cut. Without ``naming``, for everybody who
    sees the host: the names are for the owner of the task that wrote them."""
    if not names:
        return ""
    shown = ", ".join(clean(name, _SHOWN_CHARACTERS) for name in names[:_SHOWN])
    more = ", …" if len(names) > _SHOWN else ""
    which = " (%s%s)" % (shown, more) if naming else ""
    words = "%d tags were dropped or cut%s: at most %d, of %d characters each and %d in all"
    return words % (len(names), which, MOST_TAGS, LONGEST_TAG, MOST_TAG_CHARACTERS)
