"""A call that cannot be pickled says why in names of the program."""

import functools
import threading
from typing import Any

import pytest

from covey.executor.packing import Packer

LOCK = threading.Lock()
GLOBALS: dict[str, Any] = {"__name__": "__main__", "lock": LOCK}
exec(  # noqa: S102 # as a notebook does
    "def inner(): return lock, outer\n"
    "def outer(): return inner()\n"
    "class Holder:\n"
    "    def __init__(self): self.lock = lock\n"
    "    def run(self): pass\n",
    GLOBALS,
)


def closure() -> Any:
    guard = LOCK
    return lambda: guard


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "words"),
    [
        (len, (1, [LOCK]), {}, r"argument 2 \(list\)"),
        (len, (1,), {"key": LOCK}, r"argument 'key' \(lock\)"),
        (GLOBALS["inner"], (), {}, r"global 'lock' \(lock\) of inner"),
        (GLOBALS["outer"], (), {}, r"global 'lock' \(lock\) of inner"),
        (closure(), (), {}, r"variable 'guard' \(lock\) of closure.*lambda>"),
        (functools.partial(GLOBALS["outer"], 3), (), {}, r"global 'lock' \(lock\) of inner"),
        (functools.partial(print, LOCK), (), {}, r"argument 1 \(lock\) of partial"),
        (GLOBALS["Holder"]().run, (), {}, r"the object \(Holder\) of Holder.run"),
    ],
)
def test_it_is_named(function: Any, args: Any, kwargs: Any, words: str) -> None:
    with pytest.raises(TypeError, match=r"cannot pickle '_thread.lock' object: " + words + "$"):
        Packer().call(function, args, kwargs)


def test_so_it_is_among_many() -> None:
    with pytest.raises(TypeError, match=r"object: argument 1 \(lock\)"):
        Packer().calls(len, [(1,), (LOCK,)])
