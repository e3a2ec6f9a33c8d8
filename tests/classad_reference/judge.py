"""The reference: HTCondor's own engine (`classad2`), in a process of its own.

It leaks, and it can hang or die; so it lives in a worker that is replaced now and then, and one
that dies takes no more than its question with it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.classad_reference.shapes import Shape

ROOT = Path(__file__).parents[2]
WORKER = "tests.classad_reference.judge_worker"
QUESTIONS_PER_WORKER = 20_000
# Without "strict" it speaks an older language, as soon as HTCondor's layer is loaded.
ENVIRONMENT = {
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "CONDOR_CONFIG": "ONLY_ENV",
    "_CONDOR_STRICT_CLASSAD_EVALUATION": "true",
}
Texts = tuple[str, str, str | None]
Answer = tuple[Shape, float]  # and when it was given, in whole seconds


class Judge:
    """Answers batches of (expression, ad, target). An answer is None where the reference died; how
    often it did, and how, is in `deaths`."""

    def __init__(self) -> None:
        self.deaths: dict[str, int] = {}
        self._worker: subprocess.Popen[str] | None = None
        self._asked = 0

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def answers(self, batch: Sequence[Texts]) -> list[Answer | None]:
        """Each answer with the time at which it was given, in whole seconds."""
        self.begin(batch)
        return self.finish(batch)

    def begin(self, batch: Sequence[Texts]) -> None:
        """Have it think about these; `finish` must be next."""
        if self._asked > QUESTIONS_PER_WORKER:
            self._stop()
        worker = self._worker or self._start()
        self._asked += len(batch)
        assert worker.stdin is not None
        try:
            worker.stdin.write(json.dumps(batch) + "\n")
            worker.stdin.flush()
        except BrokenPipeError:
            pass  # found out when its answer is read

    def finish(self, batch: Sequence[Texts]) -> list[Answer | None]:
        found = self._heard(batch)
        if found is not None:
            return list(found)
        if len(batch) == 1:
            return [None]
        half = len(batch) // 2
        return self.answers(batch[:half]) + self.answers(batch[half:])

    def _heard(self, batch: Sequence[Texts]) -> list[Any] | None:
        worker = self._worker
        assert worker is not None
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if line.endswith("\n"):
            answers: list[Any] = json.loads(line)
            return answers
        self._stop()
        if len(batch) == 1:
            code = worker.returncode
            how = signal.Signals(-code).name if code < 0 else f"exit {code}"
            self.deaths[how] = self.deaths.get(how, 0) + 1
        return None

    def _start(self) -> subprocess.Popen[str]:
        self._worker = subprocess.Popen(
            [sys.executable, "-m", WORKER],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env={**os.environ, **ENVIRONMENT},
        )
        self._asked = 0
        return self._worker

    def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            assert worker.stdin is not None
            assert worker.stdout is not None
            try:
                worker.stdin.close()
            except BrokenPipeError:
                pass
            worker.wait()
            worker.stdout.close()
