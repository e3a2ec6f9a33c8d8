"""`covey.Executor`: what people use instead of a ProcessPoolExecutor."""

import contextlib
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from typing import Any, TypeVar

from covey.cli.base import say
from covey.core.model import BagSpec, Need
from covey.executor import options, program
from covey.executor.lane import Connecting, Lane
from covey.executor.options import Options
from covey.executor.packing import Packer
from covey.worker import pickler
from covey.worker.calls import PROTOCOL

T = TypeVar("T")

_lanes: "weakref.WeakSet[Lane]" = weakref.WeakSet()
_interpreter_ends = False
ABANDON_SECONDS = 3.0  # in which the server can be told


class Executor(futures.Executor):
    """Runs functions on every machine that a covey server has, as tasks of an open bag.

        with covey.Executor() as executor:
            print(list(executor.map(simulate, range(1000), chunksize=10)))

    `connection` is what `covey.connect()` makes; without one, that is called. At most `max_workers`
    calls are with the server at a time (None: as many as keep all slots busy; those that are not
    can still be cancelled). Workers are `python` on their host (else one like ours), stay while
    there are calls, and run `initializer(*initargs)` first; if that fails, the executor is broken.

    Each call may use `cores`, `memory_mb`, `disk_mb`, `gpus`, and `limit_seconds` of time (else
    CallTimeout); one that fails is tried again `retries` times. `policy` says on which hosts they
    run, and when one is sent to another host, too: `{"only_sites": "lab", "deadline": "10m"}`
    (docs/policies.md). `with_options` makes an executor for calls with other needs.
    """

    def __init__(
        self,
        connection: Connecting | int | None = None,
        max_workers: int | None = None,
        *,
        name: str = "executor",
        python: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        cores: int = 1,
        memory_mb: int = 0,
        disk_mb: int = 0,
        gpus: int = 0,
        limit_seconds: float = 0.0,
        retries: int = 0,
        idempotent: bool = True,
        env: Mapping[str, object] | None = None,
        policy: str | Mapping[str, object] | None = None,
    ) -> None:
        if isinstance(connection, int):  # Executor(5), as of others
            connection, max_workers = None, connection
        if connection is not None and not hasattr(connection, "client"):
            raise TypeError("connection is what covey.connect() makes")
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._shared = _Shared(connection, name, python, initializer, initargs)
        self._max_workers = max_workers
        told = {
            "cores": cores,
            "memory_mb": memory_mb,
            "disk_mb": disk_mb,
            "gpus": gpus,
            "limit_seconds": limit_seconds,
            "retries": retries,
            "idempotent": idempotent,
            "env": env,
            "policy": policy,
        }
        self._options = options.changed(options.DEFAULT, told)
        self._family: dict[Options, Executor] = {}
        self._open()

    def _open(self) -> None:
        self._ended = False  # by shutdown or abort
        shared, wanted = self._shared, self._options
        self._lane = Lane(shared.connection, lambda: shared.spec(wanted), self._max_workers)
        _lanes.add(self._lane)
        # Not at exit: what it waits for then is decided in _end.
        weakref.finalize(self, self._lane.forgotten).atexit = False

    def with_options(self, **changed: Any) -> "Executor":
        """For calls with other needs: `executor.with_options(cores=4, limit_seconds=60).submit(f)`.
        The same options give the same executor, with a bag of its own. It ends with this one, or
        sooner by a shutdown of its own; then, or when it is broken, there is a new one. Raises
        TypeError and InvalidBag; RuntimeError when this one has ended."""
        wanted = options.changed(self._options, changed)
        if wanted == self._options:
            return self
        with self._shared.guard:
            if self._ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            found = self._family.get(wanted)
            if found is None or not found._is_usable:
                made = object.__new__(Executor)
                made._shared = self._shared
                made._max_workers = self._max_workers
                made._options = wanted
                made._family = found._family if found is not None else {}
                made._open()
                found = self._family[wanted] = made
        return found

    def __reduce__(self) -> str:
        raise TypeError(
            "an executor stays in the process that made it: give functions what they need of it"
        )

    @property
    def bag(self) -> int:
        """The number of its bag, for `covey bags`; 0 until the first call is sent."""
        return self._lane.bag

    @property
    def _broken(self) -> BaseException | None:
        return self._lane.broken

    @property
    def _is_usable(self) -> bool:
        return not self._ended and self._broken is None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """What cannot be pickled, or is too large to be sent, fails its future. Large calls that
        wait may need temporary files: raises OSError when there is no space."""
        _check_running()
        try:
            call = self._shared.packer.call(fn, args, kwargs)
        except Exception as error:
            return _failed(error)
        return self._lane.submit(call)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """As of others; with a `chunksize`, so many calls travel as one task, and fail together."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout)
        _check_running()
        until = None if timeout is None else time.monotonic() + timeout
        chunks = [
            self._submit_chunk(fn, chunk)
            for chunk in _chunks(zip(*iterables, strict=False), chunksize)
        ]
        return _in_order(chunks, until)

    def _submit_chunk(
        self, fn: Callable[..., T], chunk: list[tuple[Any, ...]]
    ) -> "Future[list[T]]":
        try:
            call = self._shared.packer.calls(fn, chunk)
        except Exception as error:
            return _failed(error)
        return self._lane.submit(call)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more calls. Those that are not yet with the server are done, or with `cancel_futures`
        cancelled; `wait` for all of them."""
        lanes = self._end_all()
        for lane in lanes:
            lane.close(cancel=cancel_futures)
        if wait:
            for lane in lanes:
                lane.join()

    def abort(self) -> None:
        """Stop what runs, and all that waits: its futures raise CancelledError, the bag is
        cancelled. Nothing can be submitted any more. Does not wait."""
        for lane in self._end_all():
            lane.abort()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """A shutdown. But whoever interrupts the program does not want to wait for its calls, nor
        that they go on without it."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.abort()
            return
        try:
            self.shutdown()
        except KeyboardInterrupt:
            self.abort()
            raise

    def _end_all(self) -> list[Lane]:
        """Of this one, and of all that were made of it."""
        with self._shared.guard:
            ended = [self]
            for one in ended:
                one._ended = True
                ended += one._family.values()
        return [one._lane for one in ended]


class _Shared:
    """What executors that differ in their options have in common."""

    def __init__(
        self,
        connection: Connecting | None,
        name: str,
        python: str,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
    ) -> None:
        self.guard = threading.Lock()  # of who is made of whom
        self._connecting = threading.Lock()
        self.packer = Packer()
        self._connection = connection
        self._name = name
        self._python = python
        self._initializer = b""
        if initializer is not None:
            self._initializer = pickler.dumps((initializer, initargs), PROTOCOL)
        self._path = [os.path.abspath(one) for one in sys.path]

    def connection(self) -> Connecting:
        with self._connecting:
            if self._connection is None:
                from covey.python.connection import connect

                self._connection = connect()
            return self._connection

    def spec(self, wanted: Options) -> tuple[BagSpec, bytes]:
        from covey.whoami import user

        spec = BagSpec(
            argv=program.argv(self._python),
            calls=True,
            open=True,
            name=self._name,
            owner=user(),
            env={**program.environment(self._path), **dict(wanted.env)},
            need=Need(
                cores=wanted.cores,
                memory_mb=wanted.memory_mb,
                disk_mb=wanted.disk_mb,
                gpus=wanted.gpus,
                limit_seconds=wanted.limit_seconds,
            ),
            retries=wanted.retries,
            overtimes=0,
            breaker=0,
            idempotent=wanted.idempotent,
            policy=wanted.policy,
        )
        return spec, self._initializer


def _failed(error: Exception) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    future.set_exception(error)
    return future


def _chunks(given: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(itertools.islice(given, size)):
        yield chunk


def _in_order(chunks: "list[Future[list[T]]]", until: float | None) -> Iterator[T]:
    """The values, none of which is kept; what is not needed any more is cancelled."""
    chunks.reverse()

    def values() -> Iterator[T]:
        try:
            while chunks:
                left = None if until is None else until - time.monotonic()
                found = chunks[-1].result(left)
                chunks.pop()
                found.reverse()
                while found:
                    yield found.pop()
        finally:
            for future in chunks:
                future.cancel()

    return values()


# -- the end of the interpreter, and other processes ---------------------------------------


def _check_running() -> None:
    if _interpreter_ends:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")


def _end() -> None:
    """As other executors do: the program ends when its calls have, or is interrupted once more."""
    global _interpreter_ends
    lanes = list(_lanes)
    try:
        _interpreter_ends = True
        for lane in lanes:
            lane.close()
        for lane in lanes:
            lane.join()
    except KeyboardInterrupt:
        _abandon(lanes)


def _abandon(lanes: list[Lane]) -> None:
    say("interrupted: calls that are not done are cancelled")
    until = time.monotonic() + ABANDON_SECONDS
    with contextlib.suppress(KeyboardInterrupt):
        for lane in lanes:
            lane.abort()
        for lane in lanes:
            lane.join(max(0.0, until - time.monotonic()))


# The threads must be waited for before the interpreter takes itself apart.
threading._register_atexit(_end)  # type: ignore[attr-defined]
