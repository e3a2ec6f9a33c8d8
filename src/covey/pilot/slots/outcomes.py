"""Outcomes of tasks, with messages, from exit statuses and errors.

The rule: pure. Only this module decides, within a slot, whose fault an end was: an error of the
host is never blamed on the task.
"""

import errno
import os
import signal
import time
from typing import Container, List, NamedTuple, Optional

from covey.pilot.calls.call_records import NOT_STARTED, START_SECONDS
from covey.pilot.slots.orders import Outcome

HOST_ERRORS = (
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY,
    errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EDQUOT, errno.EINTR,
)  # fmt: skip
_TAIL_CHARACTERS = 500


class EndOfTask(NamedTuple):
    kind: str
    exit_code: int
    signal: int
    message: str


GOOD = EndOfTask("ok", 0, 0, "")


def judge(
    status: Optional[int], stopped: str, limit_seconds: float, ok_codes: Container[int]
) -> EndOfTask:
    """How a process ended. ``stopped`` is the reason for which we ended it, or ""."""
    if status == 0 and not stopped and 0 in ok_codes:
        return GOOD
    if status is None:
        return EndOfTask("host", -1, 0, "its process disappeared")
    code, number = -1, 0
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        message = "killed by {}".format(signal_name(number))
        if number == signal.SIGKILL and not stopped:
            message += " (not by covey; perhaps because memory ran out)"
    else:
        code = os.WEXITSTATUS(status)
        message = "exit code {}".format(code)
    if stopped == "timeout":
        message = "over its limit of {:g} s".format(limit_seconds)
    elif stopped:
        message = stopped
    elif code in ok_codes:
        return EndOfTask("ok", code, 0, "")
    return EndOfTask(stopped or "failed", code, number, message)


SILENT = "its worker did not start within {:g} s".format(START_SECONDS)
ENDED = "its worker ended: "
MEMORY, DISK = "memory", "disk"  # the task was ended because it was over this limit
HUNG_UP = "hung up"  # a worker was ended because it closed its line


def of_worker(status: Optional[int], stopped: str, limit_seconds: float) -> EndOfTask:
    """The end of a call whose worker has ended: in any case the call has no answer."""
    verdict = judge(status, stopped, limit_seconds, ())
    if stopped == HUNG_UP:
        words = "its worker closed the connection without an answer"
        return EndOfTask("failed", verdict.exit_code, verdict.signal, words)
    if verdict.kind == "failed":
        return verdict._replace(message=ENDED + verdict.message)
    return verdict


def not_started(message: str, printed: bytes) -> str:
    """The message for a worker that ended before HELLO; ``printed`` is its standard error."""
    last = printed.decode("utf-8", "replace").strip().rpartition("\n")[2][-_TAIL_CHARACTERS:]
    return NOT_STARTED + message[len(ENDED) :] + (": " + last if last else "")


def over_memory(limit_mb: int, peak_kb: int) -> str:
    return "over its limit of {} MB (used {} MB)".format(limit_mb, (peak_kb + 1023) // 1024)


def check_failed(verdict: EndOfTask, printed: bytes) -> str:
    """``printed`` is the output of the check."""
    text = printed.decode("utf-8", "replace").strip()
    if len(text) > _TAIL_CHARACTERS:
        text = "… " + text[-_TAIL_CHARACTERS:]
    return "the check failed: {}{}".format(verdict.message, ": " + text if text else "")


def unstarted(key: str, argv: List[str], chdir: str, error: OSError) -> Outcome:
    """The outcome of an order whose command could not be executed."""
    words = error.strerror or str(error)
    if error.errno in HOST_ERRORS:
        return Outcome(key, "host", message="cannot start a process: " + words)
    name = argv[0] if argv else ""
    missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
    if missing and chdir and not os.path.isdir(chdir):
        name, missing = chdir, False  # as sh reports a directory that it cannot enter
    message = "{}: {}".format(name, "command not found" if missing else words)
    return refused(key, message, 127 if missing else 126)


def refused(key: str, message: str, exit_code: int = 126) -> Outcome:
    """The outcome of an order that no host can run."""
    text = "covey: {}\n".format(message).encode("utf-8", "backslashreplace")
    return Outcome(
        key, "failed", exit_code, started=time.monotonic(),
        stderr=text, stderr_bytes=len(text), message=message,
    )  # fmt: skip


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)
