"""Sites over HTTP: who sees what of them, adding, changing, stopping, trying, explaining them."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from covey.core.errors import NotFound, Refused
from covey.core.record.events import (
    JobEnded,
    JobRefused,
    JobStarted,
    JobSubmitted,
    SiteFailed,
    Ticked,
)
from covey.core.record.model import BagSpec, JobId, Role, SiteSpec
from covey.core.values.space import Axis, Range
from tests.integration.api_harness import API, Place

FILED = SiteSpec(name="filed", driver="slurm", slots=2, users=("ann",), environment={"A": "w-env"})
TEN = Axis("i", Range("0", "1", 10))


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    made.sites = (FILED,)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def names(place: Place, token: str | None = None) -> list[str]:
    client = place.client() if token is None else place.client(token)
    return [one.name for one in client.sites()]


def test_sites_of_the_file_and_added_ones(place: Place) -> None:
    client = place.client()
    assert client.save_site("lab", {"driver": "slurm", "wall": "2h", "memory": "4G"}) == 1
    filed, lab = client.sites()
    assert (filed.name, filed.origin, filed.status) == ("filed", "covey.toml", "on")
    assert (lab.name, lab.origin, lab.queued_limit, lab.running_limit) == ("lab", "added", 10, 100)
    assert lab.spec == SiteSpec(name="lab", driver="slurm", wall_seconds=7200.0, memory_mb=4096)
    assert client.site("lab") == lab
    assert [one.name for one in place.do(lambda: place.ports.defined)] == ["filed", "lab"]
    client.save_site("lab", {"driver": "slurm", "price": 2})
    assert client.site("lab").price == 2
    with pytest.raises(NotFound, match="there is no site nowhere"):
        client.site("nowhere")


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("lab", {"driver": "slurm", "wal": 1}, "unknown key 'wal'; did you mean 'wall'?"),
        ("lab", {"driver": "slurm", "memory": 4}, "a size needs its unit"),
        ("lab", {"driver": "slrm"}, "there is no driver 'slrm'"),
        ("lab", {"driver": "local"}, "its settings are in [local]"),
        ("lab", {}, "driver is missing"),
        ("lab", [], "the body of the request"),
        ("filed", {"driver": "slurm"}, "is set in the server's covey.toml: change it there"),
        ("a%20b", {"driver": "slurm"}, "is not a site's name"),
    ],
)
def test_what_is_no_site_is_refused(place: Place, name: str, body: Any, told: str) -> None:
    assert told in place.refuses(400, "PUT", f"{API}/sites/{name}", body)


def test_who_sees_what(place: Place) -> None:
    place.client().save_site("lab", {"driver": "slurm", "environment": {"B": "w-too"}})
    ann, bob = place.token(Role.USER, "ann"), place.token(Role.VIEWER, "bob")
    root = place.token(Role.ADMIN, "root")
    assert names(place, ann) == names(place, root) == ["filed", "lab"]
    assert names(place, bob) == ["lab"]
    assert place.call("GET", f"{API}/sites/filed", None, bob).status == 404
    assert place.call("GET", f"{API}/sites/filed/explain", None, bob).status == 404
    for token, seen in ((ann, 0), (bob, 0), (root, 2)):
        assert place.call("GET", f"{API}/sites", None, token).body.count(b"w-") == seen
    for method, path in (
        ("PUT", "/sites/lab"),
        ("DELETE", "/sites/lab"),
        ("POST", "/sites/lab/pause"),
        ("POST", "/sites/lab/test"),
    ):
        assert "admin" in place.refuses(403, method, API + path, {"driver": "slurm"}, ann)


def test_status(place: Place) -> None:
    client = place.client()
    for word, status in (("pause", "paused"), ("drain", "draining"), ("resume", "on")):
        assert client.set_site("filed", word) == 1  # type: ignore[arg-type]
        assert client.site("filed").status == status
    with pytest.raises(NotFound, match="there is no site nowhere"):
        client.set_site("nowhere", "pause")
    with pytest.raises(Refused, match="remove it there"):
        client.remove_site("filed")


def test_a_site_is_removed_when_nothing_is_left_there(place: Place) -> None:
    client = place.client()
    client.save_site("lab", {"driver": "slurm", "slots": 4})
    client.submit(BagSpec(argv=("true",), space=TEN, owner="bob"))
    jobs = place.do(lambda: place.ports.submitted)
    assert {job.site for job in jobs} == {"lab"}
    assert client.site("lab").waiting == len(jobs)
    client.remove_site("lab")
    assert client.site("lab").status == "removed"
    cancelled = place.do(lambda: place.ports.cancelled)
    assert {job.id for job in cancelled} == {job.id for job in jobs}
    for event in (*(JobEnded(job.id, "cancelled") for job in jobs), Ticked()):
        place.do(partial(place._handle, event))
    assert names(place) == ["filed"]


def test_trouble_is_shown(place: Place) -> None:
    place.do(lambda: place._handle(SiteFailed("filed", "sinfo: command not found")))
    (one,) = place.client().sites()
    assert one.trouble == "sinfo: command not found"
    place.client().submit(BagSpec(argv=("true",), space=TEN, owner="ann"))
    found = place.client().explain_site("filed")
    assert "command not found" in found.summary
    assert found.answer.wanting[0].tasks == 10


def test_an_explanation_tells_people_of_their_own_bags(place: Place) -> None:
    place.client().save_site("lab", {"driver": "slurm"})
    place.client().submit(BagSpec(argv=("true",), space=TEN, owner="ann", name="w-name"))
    bob, ann = place.token(Role.USER, "bob"), place.token(Role.USER, "ann")
    path = f"{API}/sites/lab/explain"
    assert b"w-name" not in place.call("GET", path, None, bob).body
    assert b"w-name" in place.call("GET", path, None, ann).body
    assert b"w-name" in place.call("GET", path).body


# -- trials --------------------------------------------------------------------------------------


def test_the_steps_of_a_trial(place: Place) -> None:
    client = place.client()
    trial = client.try_site("filed")
    assert [step.kind for step in trial.steps] == ["asked"]
    assert (trial.site, trial.address, trial.over) == ("filed", "https://here", False)
    job = JobId(trial.job)
    place.do(lambda: place._handle(JobSubmitted(job, "4711")))
    place.do(lambda: place._handle(JobSubmitted(job, "4711")))
    place.do(lambda: place._handle(JobStarted(job)))
    place.enrol(job=trial.job, site="filed", host="n7")
    found = client.trial("filed", trial.job)
    told = [(step.kind, step.text) for step in found.steps]
    assert told == [("asked", ""), ("submitted", "4711"), ("started", ""), ("enrolled", "n7")]
    assert (found.pilot > 0, found.host, found.over) == (True, "n7", False)
    assert client.end_trial("filed", trial.job) == 1
    assert not place.do(lambda: place.ports.cancelled), "its pilot goes home by itself"
    place.do(lambda: place._handle(JobEnded(job, "exit status 0")))
    found = client.trial("filed", trial.job)
    assert (found.over, found.steps[-1].kind) == (True, "ended")
    assert client.end_trial("filed", trial.job) == 0


def test_a_trial_is_waited_for(place: Place) -> None:
    client = place.client()
    trial = client.try_site("filed")
    threading.Timer(
        0.3, lambda: place.do(lambda: place._handle(JobRefused(JobId(trial.job), "no account")))
    ).start()
    began = time.monotonic()
    found = client.trial("filed", trial.job, seen=1, wait_seconds=20)
    assert time.monotonic() - began < 10
    assert (found.over, found.steps[-1].kind) == (True, "refused")
    assert found.steps[-1].text == "no account"
    assert "no account" in found.trouble, "the site rests for it"


def test_a_trial_that_waits_is_taken_back(place: Place) -> None:
    client = place.client()
    trial = client.try_site("filed")
    assert client.end_trial("filed", trial.job) == 1
    assert [job.id for job in place.do(lambda: place.ports.cancelled)] == [trial.job]


def test_no_such_trial(place: Place) -> None:
    client = place.client()
    with pytest.raises(NotFound, match="there is no test 1-9 of site filed"):
        client.trial("filed", "1-9")
    with pytest.raises(NotFound, match="there is no site nowhere"):
        client.try_site("nowhere")
    assert client.end_trial("filed", "1-9") == 0


def test_jobs_of_a_site_are_seen_by_those_whose_tasks_they_are_for(place: Place) -> None:
    (job,) = place.client().site_jobs("filed", 7)
    assert (job.id, job.handle, job.state) == ("1-1", "77", "ok")
    assert place.shelf.asked[-1] == ("site_jobs", "filed", None, 7)
    place.client(place.token(Role.USER, "ann")).site_jobs("filed")
    assert place.shelf.asked[-1] == ("site_jobs", "filed", "ann", 100)
    with pytest.raises(NotFound, match="there is no site filed"):
        place.client(place.token(Role.USER, "bob")).site_jobs("filed")
