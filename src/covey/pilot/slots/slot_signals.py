"""How a slot process sleeps, and what wakes it: three signals, blocked until it waits.

The rule: signals are taken one by one, synchronously, where the loop waits. A handler that raises
can lose the status that ``wait4`` has just returned, and one that only sets a flag can miss the
moment before ``wait4`` blocks, so that a cancel would wait for hours until the task ends. With the
three signals blocked neither race exists. They are let through only while a task is started,
because the task begins with our mask: what comes then is noted, and the next ``wait`` returns it.

Other signals, which sites and people send to whole jobs, have no effect on us. They are not
ignored, which a task would inherit, but handled, which it does not.

A socket can send a signal too: with ``O_ASYNC`` the kernel sends SIGIO when something arrives on it
or its other end closes. So nobody has to signal a process id that another process may have by now.

If Python has no ``sigtimedwait`` (PyPy) it is called through ctypes, and if the system has none
(macOS) waiting is a poll every few milliseconds.
"""

import errno
import fcntl
import os
import select
import signal
import time
from typing import Any, Callable, List, Optional

try:  # what ``signal`` wraps: the wrapper would make enums of all numbers, for each task
    from _signal import pthread_sigmask  # type: ignore[import-not-found]
except ImportError:
    from signal import pthread_sigmask

INPUT = int(signal.SIGIO)
CHILD = int(signal.SIGCHLD)
PARENT = int(signal.SIGUSR1)  # "check whether your parent still needs you"
ANY = -1  # unknown: check everything

_AWAITED = (CHILD, INPUT, PARENT)
_SUFFERED = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM,
    signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGXCPU, signal.SIGXFSZ,
)  # fmt: skip
_POLL_SECONDS = 0.005

_SET = int(signal.SIG_SETMASK)

_noted: List[int] = []


def _note(number: int, frame: Any) -> None:
    if number in _AWAITED:
        _noted.append(number)


def hold_signals() -> None:
    """From now on signals arrive only in ``wait``, and only SIGKILL and our own faults end us.
    Tasks do not inherit signals that others ignored for us (Python SIGPIPE, nohup SIGHUP)."""
    signal.set_wakeup_fd(-1)
    pthread_sigmask(_SET, _AWAITED)
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            handled = number in _AWAITED or number in _SUFFERED
            try:
                signal.signal(number, _note if handled else signal.SIG_DFL)
            except (OSError, ValueError):
                pass  # this system does not have the number, or reserves it


def let_through() -> None:
    """Until ``hold``, a process that is started has no signal blocked."""
    pthread_sigmask(_SET, ())


def hold() -> None:
    """Block the signals again. All that came before have been noted."""
    pthread_sigmask(_SET, _AWAITED)


def signal_input(fd: int, on: bool = True) -> None:
    """Let the kernel send SIGIO to this process when fd has something new, or stop that."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    asynchronous = getattr(os, "O_ASYNC", getattr(fcntl, "FASYNC", 0))
    if on:
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | asynchronous if on else flags & ~asynchronous)


def _wait_native(timeout: Optional[float], fds: List[int]) -> int:
    if _noted:
        return _noted.pop()
    if timeout is None:
        return int(signal.sigwaitinfo(_AWAITED).si_signo)
    info = signal.sigtimedwait(_AWAITED, timeout if timeout > 0 else 0)
    return int(info.si_signo) if info else 0


def _wait_polling(timeout: Optional[float], fds: List[int]) -> int:
    """Wake soon, or at once if a watched socket has something new."""
    seconds = _POLL_SECONDS if timeout is None else max(0.0, min(timeout, _POLL_SECONDS))
    if not fds:
        time.sleep(seconds)
        return ANY
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    poll.poll(seconds * 1000)
    return ANY


def _ctypes_wait() -> Callable[[Optional[float], List[int]], int]:
    import ctypes  # not every small Python has it: then ImportError leads to polling

    class Timespec(ctypes.Structure):
        _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

    libc = ctypes.CDLL(None, use_errno=True)
    sigtimedwait: Any = libc.sigtimedwait
    awaited = ctypes.create_string_buffer(256)  # larger than any sigset_t
    libc.sigemptyset(awaited)
    for number in _AWAITED:
        libc.sigaddset(awaited, number)

    def wait(timeout: Optional[float], fds: List[int]) -> int:
        if _noted:
            return _noted.pop()
        seconds = 3600.0 if timeout is None else max(0.0, timeout)
        span = Timespec(int(seconds), int(seconds % 1 * 1e9))
        number = sigtimedwait(awaited, None, ctypes.byref(span))
        if number < 0 and ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            raise OSError(ctypes.get_errno(), "sigtimedwait")
        return number if number > 0 else 0

    return wait


def _choose() -> Callable[[Optional[float], List[int]], int]:
    if hasattr(signal, "sigtimedwait"):
        return _wait_native
    try:
        return _ctypes_wait()
    except (ImportError, AttributeError, OSError):
        return _wait_polling


# wait(timeout_seconds or None, sockets with signals) -> the signal, or 0 for none.
# It may return early without a reason: callers check and wait again.
wait = _choose()
