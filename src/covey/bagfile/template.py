"""The command as the tasks will run it.

Only `{name}` of a known parameter, `{task}` and `{bag}` are places for values: everything else in
braces belongs to the command, such as the program in awk '{print $1}'. A task runs in a directory
of its own, with its inputs there: words that name an input stay as they are, words that name other
files of this directory are made absolute.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from covey.core.errors import InvalidBag
from covey.core.space import Scalar

Tell = Callable[[str], None]

RESERVED = ("task", "bag")  # their numbers
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")  # as in core.filling
ALIKE = 0.75
MOST_NAMES = 5  # in one note

_WORD = re.compile(r"[A-Za-z_]\w*")
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*=)(.+)", re.DOTALL)


class Scene(NamedTuple):
    """Where a command will run."""

    here: str = ""  # what paths in the command are relative to
    chdir: str = ""
    placed: frozenset[str] = frozenset()  # inputs in the task's directory, and their folders
    prepared: bool = False  # a setup may install commands that are not here


def placeholders(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for word in words for name in PLACEHOLDER.findall(word)))


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """With the values that are known; the same in core and in pilots."""
    return PLACEHOLDER.sub(
        lambda match: str(values[match[1]]) if match[1] in values else match[0], text
    )


def check_placeholders(argv: Sequence[str], names: Sequence[str]) -> None:
    """Raises InvalidBag for what looks like a misspelt parameter."""
    known = [*names, *RESERVED]
    for name in placeholders(argv):
        close = [] if name in known else _alike(name, known)
        if close:
            raise InvalidBag(
                f"the command has {{{name}}}, but the parameter is called {close[0]}: "
                f"write {{{close[0]}}}. (To pass {{{name}}} on as it is, rename the parameter.)"
            )


def seems_meant(argv: Sequence[str], name: str) -> bool:
    """Whether a word of the command is like this parameter: `$seed`, `--seed`."""
    words = list(dict.fromkeys(word for part in argv for word in _WORD.findall(part)))
    return bool(_alike(name, words))


def tell_unused(
    argv: Sequence[str], names: Sequence[str], unused: Sequence[str], tell: Tell
) -> None:
    """That tasks differ in what none of them sees; often the name in the command is wrong."""
    if not unused:
        return
    what = "parameter" if len(unused) == 1 else "any of the parameters"
    told = ", ".join([*unused[:MOST_NAMES], *(["…"] if unused[MOST_NAMES:] else [])])
    strange = [name for name in placeholders(argv) if name not in (*names, *RESERVED)]
    hint = f"; {{{strange[0]}}} in the command is no parameter" if strange else ""
    tell(f"note: nothing uses {what} {told}: write {{{unused[0]}}} for its value{hint}")


def _alike(name: str, known: Sequence[str]) -> list[str]:
    lowered = {other.lower(): other for other in known}
    return [lowered[found] for found in get_close_matches(name.lower(), lowered, 1, ALIKE)]


def absolute_command(argv: Sequence[str], scene: Scene, tell: Tell) -> tuple[str, ...]:
    """The command with the files of this directory, inputs aside, named in full."""
    words = [_program(argv[0], scene, tell), *(_absolute_word(word, scene) for word in argv[1:])]
    if scene.placed:
        for before, after in zip(argv, words, strict=True):
            if before != after:
                tell(f"note: {before} is not among the inputs; the tasks use {after} itself")
    return tuple(words)


def _absolute_word(word: str, scene: Scene) -> str:
    if PLACEHOLDER.search(word):
        return word
    option = _OPTION.fullmatch(word)
    if option is not None:
        return option[1] + _absolute_path(option[2], scene)
    return word if word.startswith("-") else _absolute_path(word, scene)


def _absolute_path(word: str, scene: Scene) -> str:
    """Files, and directories that are written as paths (a bare `data` may mean anything)."""
    if os.path.isabs(word) or os.path.normpath(word) in scene.placed:
        return word
    if scene.chdir and os.path.exists(os.path.join(scene.chdir, word)):
        return word
    path = os.path.join(scene.here, word)
    if os.path.isfile(path) or ("/" in word and os.path.isdir(path)):
        return os.path.abspath(path)
    return word


def _program(word: str, scene: Scene, tell: Tell) -> str:
    if PLACEHOLDER.search(word):
        return word
    if "/" in word:
        return _absolute_path(word, scene)
    if shutil.which(word) or scene.prepared:
        return word
    if word in scene.placed:
        raise InvalidBag(f"the command {word!r} is an input: write ./{word}")
    path = os.path.join(scene.here, word)
    if os.path.isfile(path) and os.access(path, os.X_OK):
        found = os.path.abspath(path)
        tell(f"note: {word} is not on your PATH; taking {found}")
        return found
    raise InvalidBag(f"there is no command {word!r} on this machine{_program_hint(word, path)}")


def _program_hint(word: str, path: str) -> str:
    if any(char in word for char in " |;&<>$"):
        return f". For a line of shell, write: sh -c '{word}'"
    if os.path.isfile(path):
        if word.endswith(".py"):
            return f": {word} is a file here; write: python3 {word}"
        return f": {word} is a file here, but not executable; chmod +x {word}"
    return ": is it spelt right, and on your PATH?"
