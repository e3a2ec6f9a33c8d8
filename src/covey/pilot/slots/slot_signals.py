"""How a slot process sleeps, and what wakes it: three signals, blocked until it waits.

The rule: they are picked up one by one, synchronously, where the loop waits. A handler
that raises can lose the status ``wait4`` has just returned, and one that only sets a
flag can miss the moment before ``wait4`` blocks, so that a cancel would wait for the end
of a task of hours. With the three blocked neither race exists. Only while a task is
started they are let through, for it begins with our mask: what comes then is noted, and
is what the next ``wait`` returns.

Other signals, which sites and people send to whole jobs, do nothing to us. They are not
ignored, which a task would inherit, but handled, which it does not.

A socket can ring too: with ``O_ASYNC`` the kernel sends SIGIO when something
arrives on it or its other end closes, so nobody ever has to signal a process id
that may have been given to a stranger since.

Where there is no ``sigtimedwait`` in Python (PyPy) it is called through ctypes, and
where there is none at all (macOS) waiting is a poll every few milliseconds.
"""

import errno
import fcntl
import os
import select
import signal
import time
from typing import Any, Callable, List, Optional

try:  # what ``signal`` wraps: that would make enums of all numbers, for each task
    from _signal import pthread_sigmask  # type: ignore[import-not-found]
except ImportError:
    from signal import pthread_sigmask

RING = int(signal.SIGIO)
CHILD = int(signal.SIGCHLD)
PARENT = int(signal.SIGUSR1)  # "see whether your parent still wants you"
ANY = -1  # nobody knows what it was: look at everything

_AWAITED = (CHILD, RING, PARENT)
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
    """From now on only ``wait`` hears signals, and nothing but SIGKILL and faults of our own end
    us. What others ignored for us (Python SIGPIPE, nohup SIGHUP) tasks do not inherit."""
    signal.set_wakeup_fd(-1)
    pthread_sigmask(_SET, _AWAITED)
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            heard = number in _AWAITED or number in _SUFFERED
            try:
                signal.signal(number, _note if heard else signal.SIG_DFL)
            except (OSError, ValueError):
                pass  # a number this system does not have, or keeps to itself


def let_through() -> None:
    """Until ``hold``, whoever is started has no signal blocked."""
    pthread_sigmask(_SET, ())


def hold() -> None:
    """Every signal that came before this has been noted after it."""
    pthread_sigmask(_SET, _AWAITED)


def ring(fd: int, on: bool = True) -> None:
    """Have the kernel send SIGIO to this process when fd has news, or stop that."""
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
    """Wake soon, or at once when a watched socket has news."""
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
    import ctypes  # not every small Python has it: ImportError means polling

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


# wait(timeout_seconds or None, sockets that may ring) -> the signal, 0 for none.
# It may return early without a reason: callers look again and wait on.
wait = _choose()
