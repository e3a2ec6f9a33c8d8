"""The `covey` command, with a server that notes every step of its event loop that took long.

A step is what the loop runs between two looks at its sockets: while it lasts, nobody else is
served. Steps are measured in processor time of the loop's own thread, so a busy machine makes none
longer. Each step over $FUZZ_STEP_SECONDS becomes a line of the file $FUZZ_STEPS: its seconds, and
where it was at some moment.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import uvloop

from covey.cli.main import main

LIMIT_SECONDS = float(os.environ["FUZZ_STEP_SECONDS"])
STEPS = open(os.environ["FUZZ_STEPS"], "a", buffering=1)  # noqa: SIM115 # until the process ends
SAMPLE_SECONDS = 0.03
DEEPEST = 6  # lines of a stack that are shown


class Watch:
    """Looks at the loop's thread while a step lasts."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.step = 0  # the number of the one that runs; even: none does
        self.where: list[str] = []
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        before = 0
        while True:
            time.sleep(SAMPLE_SECONDS)
            step = self.step
            if step == before and step % 2:
                stack = traceback.extract_stack(sys._current_frames()[self.thread])
                self.where = [
                    f"{one.filename.rpartition('/covey/')[2]}:{one.lineno} {one.name}"
                    for one in stack[-DEEPEST:]
                ]
            before = step

    def measured(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        def run_measured(handle: Any) -> None:
            before = time.thread_time()
            self.step += 1
            try:
                run(handle)
            finally:
                self.step += 1
                seconds = time.thread_time() - before
                if seconds > LIMIT_SECONDS:
                    STEPS.write(json.dumps([seconds, repr(handle)[:200], self.where]) + "\n")

        return run_measured


def _set_no_delay(sock: Any) -> None:
    """asyncio does so only for sockets that say that they are TCP's, which accepted ones do not:
    each answer would take 40 ms."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


if __name__ == "__main__":
    setattr(asyncio.base_events, "_set_nodelay", _set_no_delay)  # noqa: B010
    # uvloop runs its steps in C, where nobody can measure them.
    uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment]
    wrapped = Watch().measured(getattr(asyncio.Handle, "_run"))  # noqa: B009
    setattr(asyncio.Handle, "_run", wrapped)  # noqa: B010
    main()
