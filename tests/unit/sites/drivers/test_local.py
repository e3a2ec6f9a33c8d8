"""A pilot gets what it needs to know in its start file, and nobody else can read it."""

import gc
import json
import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from covey.core.protocol.tokens import job_secret
from covey.core.record.actions import Note
from covey.core.record.events import JobEnded, JobStarted, JobSubmitted
from covey.core.record.model import JobId, JobRecord, Option, SiteSpec
from covey.ports import Post
from covey.sites.driver import OpenSite, SiteContext
from covey.sites.drivers import local
from covey.sites.drivers.local import Local, LocalSite
from covey.sites.shell import Shells

COPY = "import shutil, sys; shutil.copy2(sys.argv[1], '../../copy')"


def open_site(
    folder: Path, program: str, post: Post, notes: list[Note], options: dict[str, Option]
) -> OpenSite:
    spec = SiteSpec(name="local", driver="local", options=options)
    driver = Local(folder / "pilots", folder / "server.json", (sys.executable, "-c", program))
    whereabouts = lambda: ("", "")  # noqa: E731
    context = SiteContext(
        post, notes.append, time.monotonic, "q", "master", whereabouts, folder / "no", Shells()
    )
    driver.facts(spec)
    return driver.open(spec, context)


def started(tmp_path: Path, **options: Option) -> dict[str, object]:
    events: list[object] = []
    ended = threading.Event()

    def post(event: object) -> None:
        events.append(event)
        if isinstance(event, JobEnded):
            ended.set()

    site = open_site(tmp_path, COPY, post, [], options)
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
    assert started(tmp_path) == {
        "address_file": str(tmp_path / "server.json"),
        "secret": job_secret("master", "1-1"),
        "directory": str(tmp_path / "pilots" / "1-1" / "work"),
        "slots": 3,
        "site": "local",
        "job": "1-1",
        "cache": str(tmp_path / "cache"),
    }


def test_options_are_the_pilots(tmp_path: Path) -> None:
    found = started(tmp_path, memory_mb=500, gpus="0", cache="/elsewhere")
    assert (found["memory_mb"], found["gpus"], found["cache"]) == (500, "0", "/elsewhere")


class Ends:
    """A site whose pilots are these programs, and what is said of their ends."""

    def __init__(self, folder: Path, program: str) -> None:
        self.notes: list[Note] = []
        self._ends: dict[str, str] = {}
        self._news = threading.Condition()
        site = open_site(folder, program, self._post, self.notes, {})
        assert isinstance(site, LocalSite)
        self.site = site

    def _post(self, event: object) -> None:
        if isinstance(event, JobEnded):
            with self._news:
                self._ends[event.job] = event.reason
                self._news.notify_all()

    def of(self, number: int) -> str:
        """Start a job, and wait for its end."""
        id_ = JobId(f"1-{number}")
        self.site.submit((JobRecord(id=id_, site="local", slots=1, submitted=0.0),))
        with self._news:
            assert self._news.wait_for(lambda: id_ in self._ends, 20), self.notes
        return self._ends[id_]


def test_a_signal_without_a_name_ends_one_pilot_and_not_the_watch(tmp_path: Path) -> None:
    ends = Ends(tmp_path, "import os; os.kill(os.getpid(), 40)")
    assert [ends.of(1), ends.of(2)] == ["signal 40", "signal 40"]
    ends.site.close()


def test_an_end_that_cannot_be_looked_at_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, fails = local._processes_of, [OSError("too many open files")]

    def seldom(start_file: Path) -> list[int]:
        if fails:
            raise fails.pop()
        return look(start_file)

    monkeypatch.setattr(local, "_processes_of", seldom)
    ends = Ends(tmp_path, f"import os; os._exit({os.EX_CONFIG})")
    assert ends.of(1) == f"exit status {os.EX_CONFIG}"
    assert [note.what for note in ends.notes] == ["the end of a pilot cannot be handled"]
    ends.site.close()


def test_a_pilot_that_ends_before_anybody_watches_it_has_an_exit_status(tmp_path: Path) -> None:
    """As long as something refers to the child, Python does not ask for its exit status."""
    ends = Ends(tmp_path, f"import os; os._exit({os.EX_CONFIG})")
    watch = ends.site._watch

    def late(pid: int, *args: object, **named: object) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and can be asked yet
        watch(pid, *args, **named)  # type: ignore[arg-type]

    ends.site._watch = late  # type: ignore[method-assign]
    for number in range(1, 4):
        assert ends.of(number) == f"exit status {os.EX_CONFIG}"
        gc.collect()
    ends.site.close()
