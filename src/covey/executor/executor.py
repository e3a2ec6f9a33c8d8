"""`covey.Executor`, which people use instead of a ProcessPoolExecutor."""

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

from covey.core.record.model import BagSpec, Need
from covey.executor import options, program
from covey.executor.lane import Connecting, Lane
from covey.executor.modules import Modules, Read, Wanted
from covey.executor.options import Options
from covey.executor.packing import Packer
from covey.executor.reloads import reloads
from covey.executor.unpacking import OBJECTS, check_trust
from covey.frontend.terminal import say
from covey.worker import pickler
from covey.worker.calls import PROTOCOL

T = TypeVar("T")

_lanes: "weakref.WeakSet[Lane]" = weakref.WeakSet()
_interpreter_ends = False
ABANDON_SECONDS = 3.0  # to tell the server


class Executor(futures.Executor):
    """Runs functions on every machine that a covey server has, as tasks of an open bag.

        with covey.Executor() as executor:
            print(list(executor.map(simulate, range(1000), chunksize=10)))

    `connection` is the result of `covey.connect()`, which is called if there is none. At most
    `max_workers` calls are with the server at a time (None: as many as keep all slots busy); the
    others can still be cancelled. `name` is the bag's name in `covey bags`; the default is the name
    of the first function. A worker is a process of `python` on its host (default: a Python like
    ours). It stays as long as there are calls, and runs `initializer(*initargs)` first; if that
    fails, the executor is broken.

    `modules` are modules (or their names, or paths) whose source is sent to workers; None: those
    that the program has imported from its own folder. All others must be installed on the hosts.

    Each call may use `cores`, `memory_mb`, `disk_mb`, `gpus`, and `limit_seconds` of time (else
    CallTimeout); a call that fails is tried again `retries` times. `policy` says on which hosts
    calls run, and when one is also sent to another host: `{"only_sites": "lab", "deadline": "10m"}`
    (docs/policies.md). `with_options` makes an executor for calls with other needs.

    `trust` says what hosts may send back. With "objects" a value may be any object; unpickling one
    can run code here, so every host that runs calls must be one whose programs you would run. With
    "data" values are numbers, text, bytes, dates, and lists, tuples, dictionaries and sets of
    these; a call that returns anything else fails, and no code from a host is run.
    """

    def __init__(
        self,
        connection: Connecting | int | None = None,
        max_workers: int | None = None,
        *,
        name: str = "",
        python: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        modules: Wanted | None = None,
        cores: int = 1,
        memory_mb: int = 0,
        disk_mb: int = 0,
        gpus: int = 0,
        limit_seconds: float = 0.0,
        retries: int = 0,
        idempotent: bool = True,
        env: Mapping[str, object] | None = None,
        policy: str | Mapping[str, object] | None = None,
        trust: str = OBJECTS,
    ) -> None:
        if isinstance(connection, int):  # Executor(5), as with other executors
            connection, max_workers = None, connection
        if connection is not None and not hasattr(connection, "client"):
            raise TypeError("connection must be the result of covey.connect()")
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        check_trust(trust)
        self._shared = _Shared(connection, name, python, initializer, initargs, trust, modules)
        self._most = max_workers
        chosen = {
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
        self._options = options.changed(options.DEFAULT, chosen)
        self._family: dict[Options, Executor] = {}
        self._open()

    def _open(self) -> None:
        self._ended = False  # by shutdown or abort
        self._earlier: list[Lane] = []  # lanes that finish calls from before a reload of modules
        self._open_lane()

    def _open_lane(self) -> None:
        self._reloads = reloads.count
        shared, wanted = self._shared, self._options
        opening = _Opening(shared, wanted)
        self._lane = Lane(shared.connection, opening, self._most, shared.trust)
        _lanes.add(self._lane)
        # Not at exit: _end decides what to wait for then.
        weakref.finalize(self, self._lane.forgotten).atexit = False

    def _renew(self) -> None:
        """Modules were reloaded: send calls from now on to new workers, through a new bag."""
        with self._shared.guard:
            before = self._lane
            if self._reloads == reloads.count or self._ended or before.broken is not None:
                return
            if not before.began:
                self._reloads = reloads.count
                return
            self._open_lane()
            self._earlier = [lane for lane in self._earlier if not lane.over] + [before]
        before.close()

    def with_options(self, **changed: Any) -> "Executor":
        """An executor for calls with other needs:
        `executor.with_options(cores=4, limit_seconds=60).submit(f)`. The same options give the same
        executor, with a bag of its own. It ends with this one, or sooner by its own shutdown; then,
        or when it is broken, the next call makes a new one. Raises TypeError and InvalidBag;
        RuntimeError if this executor has ended."""
        wanted = options.changed(self._options, changed)
        if wanted == self._options:
            return self
        with self._shared.guard:
            if self._ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            executor = self._family.get(wanted)
            if executor is None or not executor._is_usable:
                made = object.__new__(Executor)
                made._shared = self._shared
                made._most = self._most
                made._options = wanted
                made._family = executor._family if executor is not None else {}
                made._open()
                executor = self._family[wanted] = made
        return executor

    def __reduce__(self) -> str:
        raise TypeError(
            "an executor cannot be sent to another process: give functions the values that they "
            "need"
        )

    def __repr__(self) -> str:
        lane = self._lane
        done, out, waiting = lane.counts()
        name = self._shared.name or lane.origin.name
        what = f" {name!r}" if name else ""
        where = f", bag {lane.bag}" if lane.bag else ""
        if lane.broken is not None:
            state = f"broken, {lane.broken}"
        else:
            state = f"{done:,} calls done, {out:,} sent, {waiting:,} waiting here"
            state += ", ended" if self._ended else ""
        return f"<covey.Executor{what}{where}: {state}>"

    @property
    def _max_workers(self) -> int:
        """How many calls run at a time at most, for dask, which reads this attribute of other
        executors. If it was not given, the number of the server's slots now."""
        return self._most or self._shared.slots()

    @property
    def bag(self) -> int:
        """The number of its bag, for `covey bags`; 0 until the first call is sent. It changes after
        a module was reloaded."""
        return self._lane.bag

    @property
    def _broken(self) -> BaseException | None:
        return self._lane.broken

    @property
    def _is_usable(self) -> bool:
        return not self._ended and self._broken is None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """A call that cannot be pickled, or is too large, fails its future. Large calls that wait
        may need temporary files: raises OSError if there is no space."""
        _check_running()
        if self._reloads != reloads.count:
            self._renew()
        try:
            call = self._shared.packer.call(fn, args, kwargs)
        except Exception as error:
            return _failed(error)
        return self._lane.submit(call, fn)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """As in other executors. `chunksize` calls are one task: they succeed or fail together."""
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
        if self._reloads != reloads.count:
            self._renew()
        try:
            call = self._shared.packer.calls(fn, chunk)
        except Exception as error:
            return _failed(error)
        return self._lane.submit(call, fn)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. Calls that are not yet with the server are done, or cancelled with
        `cancel_futures`; with `wait`, returns when all are done."""
        lanes = self._end_all()
        for lane in lanes:
            lane.close(cancel=cancel_futures)
        if wait:
            for lane in lanes:
                lane.join()

    def abort(self) -> None:
        """Stop all calls, running or waiting: their futures raise CancelledError, and the bag is
        cancelled. Nothing can be submitted any more. Does not wait."""
        for lane in self._end_all():
            lane.abort()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """A shutdown. But after an interrupt the calls are aborted: nobody wants to wait for them,
        or wants them to go on."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.abort()
            return
        try:
            self.shutdown()
        except KeyboardInterrupt:
            self.abort()
            raise

    def _end_all(self) -> list[Lane]:
        """End this executor and all that were made from it; returns their lanes."""
        with self._shared.guard:
            ended = [self]
            for executor in ended:
                executor._ended = True
                ended += executor._family.values()
        return [lane for executor in ended for lane in (*executor._earlier, executor._lane)]


class _Shared:
    """What executors with different options share."""

    def __init__(
        self,
        connection: Connecting | None,
        name: str,
        python: str,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        trust: str,
        modules: Wanted | None,
    ) -> None:
        self.trust = trust
        self.modules = Modules(modules)
        self.guard = threading.Lock()  # protects the families of executors
        self._connecting = threading.Lock()
        self.packer = Packer()
        self._connection = connection
        self.name = name
        self._python = python
        self.initializer = b""
        if initializer is not None:
            self.initializer = pickler.dumps((initializer, initargs), PROTOCOL)
        self._path = [os.path.abspath(folder) for folder in sys.path]

    def connection(self) -> Connecting:
        with self._connecting:
            if self._connection is None:
                from covey.python.connection import connect

                self._connection = connect()
            return self._connection

    def slots(self) -> int:
        """The slots that the server has now, or will have when its first pilot is there."""
        connection = self.connection()
        server = connection.client().server()
        config = getattr(connection, "config", None)
        return server.slots or (config.local_slots if config is not None else 0) or 1

    def spec(self, wanted: Options) -> BagSpec:
        from covey.whoami import user

        return BagSpec(
            argv=program.argv(self._python),
            calls=True,
            open=True,
            name=self.name,
            owner=user(),
            env={**program.environment(self._path), **dict(wanted.env)},
            need=Need(**{name: getattr(wanted, name) for name in Need.__struct_fields__}),
            retries=wanted.retries,
            overtimes=0,
            breaker=0,
            idempotent=wanted.idempotent,
            policy=wanted.policy,
        )


class _Opening:
    """What a lane needs to open its bag: the bag's specification, and the workers' program."""

    def __init__(self, shared: _Shared, wanted: Options) -> None:
        self._shared = shared
        self._wanted = wanted
        self._modules = Read()
        self.prepares = bool(shared.initializer)

    def spec(self) -> BagSpec:
        return self._shared.spec(self._wanted)

    def program(self) -> bytes:
        """Reads modules when the bag is opened. Raises InvalidBag if named ones are too large."""
        read = self._modules = self._shared.modules.read()
        reloads.watch(read.names())
        if read.left_out:
            say(f"too large to send, so they must be on the hosts: {', '.join(read.left_out)}")
        return program.program(self._shared.initializer, read.files)

    def warning(self) -> str:
        """A message for people; empty if there is none."""
        path = self._modules.changed()
        return path and (
            f"{path} has changed, but calls still run what this program has imported; after "
            "importlib.reload, or with a new Executor, they run the new one"
        )


def _failed(error: Exception) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    future.set_exception(error)
    return future


def _chunks(items: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def _in_order(chunks: "list[Future[list[T]]]", until: float | None) -> Iterator[T]:
    """The values in order; none is kept, and calls that are not needed any more are cancelled."""
    chunks.reverse()

    def values() -> Iterator[T]:
        try:
            while chunks:
                left = None if until is None else until - time.monotonic()
                results = chunks[-1].result(left)
                chunks.pop()
                results.reverse()
                while results:
                    yield results.pop()
        finally:
            for future in chunks:
                future.cancel()

    return values()


# -- the end of the interpreter, and other processes ---------------------------------------


def _check_running() -> None:
    if _interpreter_ends:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")


def _end() -> None:
    """As other executors do: the program ends after its calls, or when it is interrupted again."""
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


# These threads must be waited for before the interpreter takes itself apart.
threading._register_atexit(_end)  # type: ignore[attr-defined]
