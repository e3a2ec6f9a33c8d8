"""What a function is, and how a row of the table defines one."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from covey.classad.functions.convert import text_of
from covey.classad.values import ERROR, UNDEFINED, Context, Value


class Function(NamedTuple):
    """`call(context, values)`; a lazy one is `call(context, nodes, evaluate)`. With fewer than
    `least` or more than `most` arguments (None: no limit) the result is ERROR, and no argument is
    evaluated. `pure`: equal arguments give equal results. `bind(constants)` may give a callable for
    the fast path, and with a context for the general path."""

    name: str
    call: Callable[..., Value]
    least: int
    most: Optional[int]
    lazy: bool = False
    pure: bool = True
    bind: Optional[Callable[[Sequence[Any]], Optional[Callable[..., Value]]]] = None


FUNCTIONS: Dict[str, Function] = {}
_TAKEN: Dict[str, Callable[[Context, Value], Value]] = {
    "t": text_of,
    "s": lambda context, value: value if value.__class__ is str else None,
    "i": lambda context, value: value if value.__class__ is int else None,
    "l": lambda context, value: list(value) if isinstance(value, list) else None,
}


def row(names: str, kinds: str, how: Callable[..., Value], **more: Any) -> None:
    """Adds a function under each of its names. `kinds` has a letter for each argument: v any value,
    t a text made from it, s a string, i an integer, l a list; a value of another kind gives ERROR.
    Capitals: undefined gives undefined. Arguments after `|` are optional; with `*` there may be
    more; with `!` an error among them comes first. Strings and lists have a cost and limits."""
    letters = kinds.replace("|", "").strip("!*")

    def call(context: Context, values: List[Value]) -> Value:
        if kinds[:1] == "!" and any(value is ERROR for value in values):
            return ERROR
        for kind, value in zip(letters, values):
            if value is UNDEFINED and kind.isupper():
                return UNDEFINED
        taken = []
        for place, value in enumerate(values):
            if place < len(letters) and letters[place] not in "vV":
                value = _TAKEN[letters[place].lower()](context, value)
                if value is None or value is ERROR or value is UNDEFINED:
                    return ERROR
            if isinstance(value, (str, list)):
                context.spend(len(value) >> (5 if isinstance(value, str) else 0))
            taken.append(value)
        result = how(context, *taken)
        limit = {str: context.length, list: context.size}.get(result.__class__)
        if limit is not None and len(result) > limit:
            context.stop("the result of %s is longer than allowed" % names)
        return result

    most = None if "*" in kinds else len(letters)
    for name in names.split():
        least = len(kinds.strip("!*").split("|")[0])
        FUNCTIONS[name.lower()] = Function(name, call, least, most, **more)
