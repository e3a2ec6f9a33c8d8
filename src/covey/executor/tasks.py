"""`@covey.task`: the simple case. The function stays as it is; `submit` and `map` run it on hosts.

All tasks of a program share one executor, which is made for the first submission. It ends with the
program, which waits for all submitted calls.
"""

import copy
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, ParamSpec, TypeVar, overload

from covey.executor.executor import Executor
from covey.executor.options import DEFAULT, changed

P = ParamSpec("P")
T = TypeVar("T")

_guard = threading.Lock()
_shared: dict[int, Executor] = {}  # by process: a forked process needs its own


class TaskFunction(Generic[P, T]):
    """A function that can also be submitted."""

    __name__: str
    __wrapped__: Callable[P, T]

    def __init__(self, function: Callable[P, T], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        functools.update_wrapper(self, function)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function here and now, as without the decorator."""
        return self._function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> "TaskFunction[..., T]":
        """As a method it is bound like any other; `submit` sends the instance, too."""
        bind = getattr(self._function, "__get__", None)
        bound = self._function if bind is None else bind(instance, owner)
        return self if bound is self._function else TaskFunction(bound, self._options)

    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        return self._executor().submit(self._function, *args, **kwargs)

    def map(
        self, *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        run = self._executor().map
        return run(self._function, *iterables, timeout=timeout, chunksize=chunksize)

    def _executor(self) -> Executor:
        return shared_executor().with_options(**self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        """On a host it is only the function (whose copy is itself): nothing to submit to there."""
        return copy.copy, (self._function,)


@overload
def task(function: Callable[P, T], /) -> TaskFunction[P, T]: ...


@overload
def task(**options: Any) -> Callable[[Callable[P, T]], TaskFunction[P, T]]: ...


def task(function: Callable[P, T] | None = None, /, **options: Any) -> Any:
    """A function that can be submitted: `f.submit(x)`, `f.map(xs)`; `f(x)` still runs here.

    @covey.task
    def area(radius): ...

    @covey.task(cores=4, limit_seconds=60)
    def simulate(seed): ...

    The options are those of `Executor.with_options`.
    """
    changed(DEFAULT, options)  # refuses wrong options at once
    if function is not None:
        return TaskFunction(function, options)
    return lambda decorated: TaskFunction(decorated, options)


def shared_executor() -> Executor:
    with _guard:
        executor = _shared.get(os.getpid())
        if executor is None or not executor._is_usable:
            executor = _shared[os.getpid()] = Executor(name="tasks")
        return executor
