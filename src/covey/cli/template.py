"""The command as the tasks will run it.

Only `{name}` of a known parameter, `{task}` and `{bag}` are places for values: everything else in
braces belongs to the command, such as the program in awk '{print $1}'. Tasks run in their own empty
directories, so words that name files here are made absolute.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from covey.cli.values import RESERVED
from covey.core.errors import InvalidBag

Tell = Callable[[str], None]

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_WORD = re.compile(r"[A-Za-z_]\w*")
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*=)(.+)", re.DOTALL)
ALIKE = 0.75


def placeholders(argv: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for word in argv for name in _PLACEHOLDER.findall(word)))


def check_placeholders(argv: Sequence[str], names: Sequence[str], tell: Tell) -> None:
    """Raises InvalidBag for what looks like a misspelt parameter."""
    known = [*names, *RESERVED]
    used = placeholders(argv)
    for name in used:
        close = [] if name in known else _alike(name, known)
        if close:
            raise InvalidBag(
                f"the command has {{{name}}}, but the parameter is called {close[0]}: "
                f"write {{{close[0]}}}. (To pass {{{name}}} on as it is, rename the parameter.)"
            )
    words = list(dict.fromkeys(word for part in argv for word in _WORD.findall(part)))
    for name in names:
        if name not in used and _alike(name, words):
            tell(f"note: the command does not use parameter {name}: write {{{name}}} for its value")


def _alike(name: str, known: Sequence[str]) -> list[str]:
    lowered = {other.lower(): other for other in known}
    return [lowered[found] for found in get_close_matches(name.lower(), lowered, 1, ALIKE)]


def absolute_command(argv: Sequence[str], chdir: str, tell: Tell) -> tuple[str, ...]:
    """The command with the files of this directory named in full."""
    program = _program(argv[0], chdir, tell)
    return (program, *(_absolute_word(word, chdir) for word in argv[1:]))


def _absolute_word(word: str, chdir: str) -> str:
    if _PLACEHOLDER.search(word):
        return word
    option = _OPTION.fullmatch(word)
    if option is not None:
        return option[1] + _absolute_path(option[2], chdir)
    return word if word.startswith("-") else _absolute_path(word, chdir)


def _absolute_path(word: str, chdir: str) -> str:
    """Files, and directories that are written as paths (a bare `data` may mean anything)."""
    if os.path.isabs(word) or (chdir and os.path.exists(os.path.join(chdir, word))):
        return word
    if os.path.isfile(word) or ("/" in word and os.path.isdir(word)):
        return os.path.abspath(word)
    return word


def _program(word: str, chdir: str, tell: Tell) -> str:
    if _PLACEHOLDER.search(word):
        return word
    if "/" in word:
        return _absolute_path(word, chdir)
    if shutil.which(word):
        return word
    if os.path.isfile(word) and os.access(word, os.X_OK):
        found = os.path.abspath(word)
        tell(f"note: {word} is not on your PATH; taking {found}")
        return found
    raise InvalidBag(f"there is no command {word!r} on this machine{_program_hint(word)}")


def _program_hint(word: str) -> str:
    if any(char in word for char in " |;&<>$"):
        return f". For a line of shell, write: sh -c '{word}'"
    if Path(word).is_file():
        if word.endswith(".py"):
            return f": {word} is a file here; write: python3 {word}"
        return f": {word} is a file here, but not executable; chmod +x {word}"
    return ": is it spelt right, and on your PATH?"
