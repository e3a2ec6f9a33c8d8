"""The options in `[sites.NAME.options]`, read as a Struct of the driver.

An option that is silently ignored costs its author a day (see `covey.config`). So an unknown option
is refused, and the message names the known ones. An option may be a table, or a list of tables:
these are Structs of the driver, too.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from covey.core.errors import BadConfig
from covey.core.record.model import SiteSpec

Options = TypeVar("Options", bound=Struct)

# Arguments that are passed on unchanged, such as "--mail-type=NONE": they may begin with dashes.
Extra: TypeAlias = Annotated[
    tuple[str, ...],
    Meta(description="Additional arguments of the submit command, passed on unchanged."),
]

NEW_LINE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")  # all but the tab
KINDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def options_of(spec: SiteSpec, kind: type[Options]) -> Options:
    """Raises BadConfig, with the option that is wrong."""
    try:
        return msgspec.convert(spec.options, kind)
    except msgspec.ValidationError as error:
        for problem in _problems(spec, "", spec.options, kind):
            raise BadConfig(f"site {spec.name}: {problem}") from None
        raise BadConfig(f"site {spec.name}: options: {error}") from None


def argument_options(spec: SiteSpec, kind: type[Options]) -> Options:
    """For drivers whose options become arguments of commands. A text becomes part of one argument,
    never of a line for a shell, so quotes and blanks are harmless. Line breaks are refused (some
    commands read lines), and so is a text that begins with a dash: a command would take it for an
    option. Raises BadConfig."""
    for name, value in spec.options.items():
        where = f"site {spec.name}: option {name!r} of driver {spec.driver!r}"
        for text in _texts(value):
            if NEW_LINE.search(text):
                raise BadConfig(f"{where}: {text!r} has a line break or a control character")
        if isinstance(value, str) and value.startswith("-"):
            raise BadConfig(f"{where}: {value!r} must not begin with a dash")
    return options_of(spec, kind)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def _problems(spec: SiteSpec, path: str, table: Any, kind: type[Struct]) -> Iterator[str]:
    """The mistakes in a table, in the order in which it is written."""
    hints = get_type_hints(kind)
    for name, value in table.items():
        where = f"option {path + name!r} of driver {spec.driver!r}"
        if name not in hints:
            yield f"{where} is unknown{_suggest(name, list(hints))}"
            continue
        for inner_path, inner, inner_kind in _tables(value, hints[name]):
            yield from _problems(spec, f"{path}{name}{inner_path}.", inner, inner_kind)
        try:
            msgspec.convert(value, hints[name])
        except msgspec.ValidationError:
            yield f"{where} is {value!r}; it must be {_wanted(hints[name])}"
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
    missing = ", ".join(path + name for name in needed if name not in table)
    if missing:
        yield f"driver {spec.driver!r} needs {missing}"


def _tables(value: object, kind: Any) -> Iterator[tuple[str, Any, type[Struct]]]:
    """The tables in a value that are Structs of the driver, each with its path."""
    inner = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, Mapping):
        yield "", value, kind
    elif get_origin(kind) is tuple and isinstance(value, list | tuple):
        for number, element in enumerate(value):
            for path, table, struct in _tables(element, inner[0]):
                yield f"[{number}]{path}", table, struct
    elif get_origin(kind) is dict and isinstance(value, Mapping):
        for key, element in value.items():
            for path, table, struct in _tables(element, inner[1]):
                yield f".{key}{path}", table, struct


def _suggest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, 1)
    there = f"options: {', '.join(known)}" if known else "this driver has no options"
    return f"; did you mean {close[0]!r}? ({there})" if close else f"; {there}"


def _wanted(kind: Any) -> str:
    if kind in KINDS:
        return KINDS[kind]
    inner = get_args(kind)
    if inner and all(isinstance(word, str) for word in inner):
        return f"one of {', '.join(inner)}"
    if get_origin(kind) is tuple:
        return "a list of texts" if inner[0] is str else "a list of tables"
    return "a table"
