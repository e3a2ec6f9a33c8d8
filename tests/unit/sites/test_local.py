"""A pilot gets what it needs to know in its start file, and nobody else can read it."""

import json
import stat
import sys
import threading
from pathlib import Path

from covey.core.events import JobEnded, JobStarted, JobSubmitted
from covey.core.model import JobId, JobRecord
from covey.core.tokens import job_secret
from covey.sites.local import LocalSite

COPY = "import shutil, sys; shutil.copy2(sys.argv[1], '../../copy')"


def started(tmp_path: Path, options: dict[str, object] | None) -> dict[str, object]:
    events: list[object] = []
    ended = threading.Event()

    def post(event: object) -> None:
        events.append(event)
        if isinstance(event, JobEnded):
            ended.set()

    site = LocalSite(
        tmp_path / "pilots",
        tmp_path / "server.json",
        "master",
        [sys.executable, "-c", COPY],
        post,
        options,
    )
    job = JobRecord(id=JobId("1-1"), site="local", slots=3, submitted=0.0)
    site.submit((job,))
    assert ended.wait(20)
    assert [type(event) for event in events] == [JobSubmitted, JobStarted, JobEnded]
    copy = tmp_path / "copy"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    found = json.loads(copy.read_text())
    assert isinstance(found, dict)
    return found


def test_the_start_file(tmp_path: Path) -> None:
    assert started(tmp_path, None) == {
        "address_file": str(tmp_path / "server.json"),
        "secret": job_secret("master", "1-1"),
        "directory": str(tmp_path / "pilots" / "1-1" / "work"),
        "slots": 3,
        "site": "local",
        "job": "1-1",
        "cache": str(tmp_path / "cache"),
    }


def test_options_are_the_pilots(tmp_path: Path) -> None:
    found = started(tmp_path, {"memory_mb": 500, "gpus": ["0"], "cache": "/elsewhere"})
    assert (found["memory_mb"], found["gpus"], found["cache"]) == (500, ["0"], "/elsewhere")
