"""Whatever people and pilots send: the server answers, at once, and goes on.

Sixty seconds of it in `make test`; `make soak` sets FUZZ_SECONDS to twenty minutes and more.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
import requests

from tests.faults.world import open_world
from tests.fuzz.hostile import STEP_SECONDS, Asked, Complaint, Hostile
from tests.fuzz.served import served

SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
SEED = os.environ.get("FUZZ_SEED", str(datetime.now(UTC).date().toordinal()))
WATCHED = [sys.executable, "-P", "-m", "tests.fuzz.watched_server"]


@contextmanager
def hostile(seed: str) -> Iterator[Hostile]:
    with open_world() as world, requests.Session() as session:
        steps = world.root / "steps"
        steps.touch()
        env = {
            "FUZZ_STEPS": str(steps),
            "FUZZ_STEP_SECONDS": str(STEP_SECONDS),
            "COVEY_SERVE_POLL_SECONDS": "0.5",
            "PYTHONPATH": os.getcwd(),
        }

        def serve() -> int:
            command = [*WATCHED, "serve", "--dir", str(world.directory), "--pilots", "0"]
            process = world.start(command, env=env, start_new_session=True)
            world.wait_ready(process)
            return process.pid

        pid = serve()
        yield Hostile(served(world, session), pid, serve, steps, seed)


@pytest.mark.timeout(SECONDS * 3 + 300)
def test_no_request_holds_or_ends_the_server() -> None:
    print(f"FUZZ_SEED={SEED}")
    with hostile(SEED) as fuzz:
        sent = fuzz.run(SECONDS)
        print(f"{sent} requests, the slowest {fuzz.slowest:.2f} s of the processor", fuzz.seen)
        assert sent > SECONDS
        fuzz.kill_and_serve_again()
        fuzz.be_honest()


def test_a_request_that_holds_the_loop_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.hostile.STEP_SECONDS", 0.0)
    monkeypatch.setattr("tests.fuzz.test_hostile.STEP_SECONDS", 0.0)
    with hostile(SEED) as fuzz, pytest.raises(Complaint, match="the loop was held"):
        fuzz.ask(Asked("GET", "/api/v1/bags", b"", fuzz.server.own))
