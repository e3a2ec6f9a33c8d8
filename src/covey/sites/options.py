"""What `[sites.NAME.options]` says, read as its driver's own Struct.

An option that is silently ignored costs its author a day, as in `covey.config`; so what a driver
does not know is refused, with what it does know. A value becomes part of one argument, never of a
shell's line, so quotes and blanks are harmless; a line break never is (some commands read lines),
and a value that begins with a dash would be taken for an option of its own.
"""

import re
from difflib import get_close_matches
from typing import Annotated, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from covey.core.errors import BadConfig
from covey.core.record.model import SiteSpec

Options = TypeVar("Options", bound=Struct)

# Arguments that are handed on as they are, such as "--mail-type=NONE": these may begin with dashes.
Extra: TypeAlias = Annotated[
    tuple[str, ...],
    Meta(description="Additional arguments of the submit command, passed on unchanged."),
]

NEW_LINE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")  # a tab is none
KINDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def options_of(spec: SiteSpec, kind: type[Options]) -> Options:
    """Raises BadConfig, with words for whoever wrote them."""
    hints = get_type_hints(kind)
    for name, value in spec.options.items():
        where = f"site {spec.name}: option {name!r} of driver {spec.driver!r}"
        if name not in hints:
            raise BadConfig(f"{where} is unknown{_suggest(name, list(hints))}")
        for text in (
            [value] if isinstance(value, str) else value if isinstance(value, tuple) else ()
        ):
            if NEW_LINE.search(text):
                raise BadConfig(f"{where}: {text!r} has a line break or a control character")
        if isinstance(value, str) and value.startswith("-"):
            raise BadConfig(f"{where}: {value!r} must not begin with a dash")
    try:
        return msgspec.convert(spec.options, kind)
    except msgspec.ValidationError:
        pass
    for name, value in spec.options.items():
        try:
            msgspec.convert({name: value}, kind)
        except msgspec.ValidationError:
            where = f"site {spec.name}: option {name!r} of driver {spec.driver!r}"
            raise BadConfig(f"{where} is {value!r}; it must be {_wanted(hints[name])}") from None
    missing = [field.name for field in msgspec.structs.fields(kind) if field.required]
    raise BadConfig(f"site {spec.name}: driver {spec.driver!r} needs {', '.join(missing)}")


def _suggest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, 1)
    there = f"options: {', '.join(known)}" if known else "this driver has no options"
    return f"; did you mean {close[0]!r}? ({there})" if close else f"; {there}"


def _wanted(kind: object) -> str:
    if kind in KINDS:
        return KINDS[kind]
    inner = get_args(kind)
    if inner and all(isinstance(word, str) for word in inner):
        return f"one of {', '.join(inner)}"
    return "a list of texts" if inner == (str, ...) else str(kind)
