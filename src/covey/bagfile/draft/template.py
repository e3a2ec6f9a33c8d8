"""The command as the tasks will run it.

`{name}` is the place for a parameter's value, `{task}` and `{bag}` for their numbers. An unknown
name is refused; `{{name}}` passes {name} on to the command. Everything else in braces belongs to
the command, such as awk '{print $1}' and the shell's ${HOME}. A task runs in a directory
of its own, with its inputs there: words that name an input stay as they are, words that name other
files of this directory are made absolute.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from typing import NamedTuple

from covey.core.errors import InvalidBag
from covey.core.values.suggestions import nearest
from covey.pilot.protocol.placeholders import NAME, NUMBERS, PLACEHOLDER

Tell = Callable[[str], None]

ALIKE = 0.75
MOST_NAMES = 5  # in one note
LONGEST_SHEBANG = 256

_BRACED = re.compile(rf"(?P<escape>[${{]?)\{{(?P<name>{NAME})\}}")
_ESCAPED = re.compile(rf"\{{\{{(?P<name>{NAME})\}}\}}")
_BLANK = re.compile(r"\s")
_WORD = re.compile(r"[A-Za-z_]\w*")
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*=)(.+)", re.DOTALL)


class Scene(NamedTuple):
    """Where a command will run."""

    here: str = ""  # what paths in the command are relative to
    chdir: str = ""
    placed: frozenset[str] = frozenset()  # inputs in the task's directory, and their folders
    prepared: bool = False  # a setup may install commands that are not here


def check_placeholders(argv: Sequence[str], names: Sequence[str]) -> None:
    """Raises InvalidBag for a {name} that is no parameter."""
    known = [*names, *NUMBERS]
    quoted = f" ({_quoted_words(argv[0])})" if len(argv) == 1 and _BLANK.search(argv[0]) else ""
    for word in argv:
        for match in _BRACED.finditer(word):
            name = match["name"]
            if name not in known and not match["escape"]:
                raise InvalidBag(
                    f"the command has {{{name}}}, but {_instead(name, known, names, argv)}. "
                    f"To pass {{{name}}} on as it is, write {{{{{name}}}}}{quoted}"
                )


def _instead(name: str, known: Sequence[str], names: Sequence[str], argv: Sequence[str]) -> str:
    near = nearest(name, known, least=ALIKE)
    if near:
        return f"the parameter is called {near}: write {{{near}}}"
    if "-p" in argv[1:]:
        return f"there is no parameter {name}: write -p {name}=VALUES before the command"
    there = f"there are {name_list(names)}" if names else f"there are none: add -p {name}=VALUES"
    return f"there is no parameter {name}; {there}"


def name_list(names: Sequence[str]) -> str:
    """The first few names; … stands for the others."""
    return ", ".join([*names[:MOST_NAMES], *(["…"] if names[MOST_NAMES:] else [])])


def unescaped(word: str, names: Sequence[str]) -> str:
    """With {name} in place of `{{name}}`. Pilots leave a {name} alone if it is no parameter."""
    known = (*names, *NUMBERS)

    def plain(match: "re.Match[str]") -> str:
        name = match["name"]
        return match[0] if name in known else f"{{{name}}}"

    return _ESCAPED.sub(plain, word)


def seems_meant(argv: Sequence[str], name: str) -> bool:
    """Whether a word of the command is like this parameter: `$seed`, `--seed`."""
    words = list(dict.fromkeys(word for part in argv for word in _WORD.findall(part)))
    return bool(nearest(name, words, least=ALIKE))


def tell_unused(unused: Sequence[str], tell: Tell) -> None:
    """Warn that tasks differ in a parameter that none of them uses."""
    if not unused:
        return
    what = "parameter" if len(unused) == 1 else "any of the parameters"
    tell(f"note: nothing uses {what} {name_list(unused)}: write {{{unused[0]}}} for its value")


def absolute_command(argv: Sequence[str], scene: Scene, tell: Tell) -> tuple[str, ...]:
    """The command with absolute paths for files of this directory that are not inputs."""
    words = [_program(argv[0], scene, tell), *(_absolute_word(word, scene) for word in argv[1:])]
    if scene.placed:
        for before, after in zip(argv, words, strict=True):
            if before != after:
                tell(f"note: {before} is not among the inputs; the tasks use the file {after}")
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
    if _BLANK.search(word) and not os.path.exists(os.path.join(scene.here, word)):
        raise InvalidBag(f"there is no command {word!r}: {_quoted_words(word)}")
    if PLACEHOLDER.search(word):
        return word
    if "/" in word:
        _check_executable(word, scene)
        return _absolute_path(word, scene)
    if shutil.which(word) or scene.prepared:
        return word
    if word in scene.placed:
        raise InvalidBag(f"the command {word!r} is an input: write ./{word}")
    path = os.path.join(scene.here, word)
    if os.path.isfile(path) and os.access(path, os.X_OK):
        program = os.path.abspath(path)
        tell(f"note: {word} is not on your PATH; taking {program}")
        return program
    raise InvalidBag(f"there is no command {word!r} on this machine{_program_hint(word, path)}")


def _quoted_words(word: str) -> str:
    return (
        "it is one word with blanks in it. For a program and its arguments, write: "
        f"-- {word}   For a line of shell, write: -- sh -c {shlex.quote(word)}"
    )


def _check_executable(word: str, scene: Scene) -> None:
    """Raises InvalidBag for a script of this directory that is not executable, unless a setup may
    change that."""
    path = os.path.join(scene.here, word)
    if os.path.isfile(path) and not os.access(path, os.X_OK) and not scene.prepared:
        how = f"write: {_interpreter(path)} {word}   or: chmod +x {word}"
        raise InvalidBag(f"{word} is a file here, but not executable; {how}")


def _program_hint(word: str, path: str) -> str:
    if any(char in word for char in "|;&<>$"):
        return f". For a line of shell, write: sh -c '{word}'"
    if os.path.isfile(path):
        how = f"write: {_interpreter(path)} {word}   or: chmod +x {word}, and write ./{word}"
        return f": {word} is a file here, but not executable; {how}"
    return ": is it spelt right, and on your PATH?"


def _interpreter(path: str) -> str:
    """The program that runs this script: named in its first line, else guessed from its ending."""
    try:
        with open(path, "rb") as file:
            first = file.readline(LONGEST_SHEBANG)
    except OSError:
        first = b""
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    if words and words[0].isprintable():
        return " ".join([os.path.basename(words[0]), *words[1:]])
    return "python3" if path.endswith(".py") else "sh"
