"""Make sure that the server accepts what a pilot sends, whatever a task has done.

The limits are in `messages`, and the server checks the same ones. Here the pilot changes what would
be over a limit, before it sends it: a text is cut, a tag is dropped, and an end whose files cannot
be reported becomes a failure. A message always says what was changed.
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

_MOST_ESCAPED = 12  # bytes of one character in JSON
_FILE_BYTES = 300  # bytes of a file in JSON besides its path and its data
SMALL = MOST_END_BYTES // _MOST_ESCAPED - 1000  # so many characters fit, whatever they are
_SHORT_LOG = 100_000  # characters
_CUT = " […]"
_SHOWN = 5
_SHOWN_CHARACTERS = 60  # of a name


def is_unicode(text: str) -> bool:
    """False, for example, for a file name that is not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def clean(text: str, most: int) -> str:
    """The text, cut to at most so many characters; what is not Unicode is escaped."""
    if not is_unicode(text):
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


# -- ends ------------------------------------------------------------------------------------


def allowed_end(end: End) -> End:
    """The end itself or, if the server would refuse it, one that the server accepts. Only texts and
    files come from tasks; numbers are the pilot's own."""
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
    size += len(end.message) + sum(len(file.path) + len(file.data) + _FILE_BYTES for file in files)
    if not problem and size >= SMALL:
        bytes_ = len(json.dumps(end))
        if bytes_ > MOST_END_BYTES:
            words = "its result, with the names of its %d files, takes %d bytes in a message"
            problem = (words + "; at most %d are allowed") % (len(files), bytes_, MOST_END_BYTES)
    return _without_files(end, problem) if problem else end


def _with_short_logs(end: End) -> End:
    words = "its output was cut: it has more commas than a message may have (%d)" % MOST_LOG_COMMAS
    message = clean("%s; %s" % (end.message, words) if end.message else words, MOST_MESSAGE)
    stdout, stderr = end.stdout[:_SHORT_LOG], end.stderr[:_SHORT_LOG]
    return end._replace(stdout=stdout, stderr=stderr, message=message)


def refused_end(end: End, words: str) -> End:
    """The end that replaces one that the server has refused: it says so, and little else."""
    message = clean("the server refused the report of this attempt: " + words, MOST_MESSAGE)
    return End(*end[:4], outcome=_failed(end.outcome), message=message)


def _failed(outcome: str) -> str:
    """A task that succeeded counts as failed if its results cannot be reported."""
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
    """The tags that the server accepts, and the names of those that were dropped or cut. If there
    are too many, the first ones are dropped."""
    allowed: Dict[str, str] = {}
    changed: List[str] = []
    room = MOST_TAG_CHARACTERS
    for name, value in reversed(list(tags.items())):
        text = clean(value, LONGEST_TAG)
        size = len(name) + len(text)
        good = len(name) <= LONGEST_TAG and is_unicode(name)
        if not good or len(allowed) >= MOST_TAGS or size > room:
            changed.append(name)
            continue
        if text != value:
            changed.append(name)
        room -= size
        allowed[name] = text
    return dict(reversed(list(allowed.items()))), changed[::-1]


def dropped_tags_message(names: List[str], naming: bool = True) -> str:
    """A message about tags that were dropped or cut. Everybody who sees the host gets it without
    names (``naming``): the names are only for the owner of the task that wrote them."""
    if not names:
        return ""
    shown = ", ".join(clean(name, _SHOWN_CHARACTERS) for name in names[:_SHOWN])
    more = ", …" if len(names) > _SHOWN else ""
    which = " (%s%s)" % (shown, more) if naming else ""
    words = "%d tags were dropped or cut%s: at most %d, of %d characters each and %d in all"
    return words % (len(names), which, MOST_TAGS, LONGEST_TAG, MOST_TAG_CHARACTERS)
