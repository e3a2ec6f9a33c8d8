"""`covey site` with a real server, real pilots and a real Slurm: what people see and do."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_cli import Place, wait_until
from tests.testbed.slurm import Slurm


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.covey("stop")


def sites(place: Place) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(place.covey("site", "list", "--json").stdout)}


def describe(place: Place, slurm: Slurm, **more: str) -> None:
    """alpha, a site of covey.toml; `more` are keys of it, as TOML."""
    keys = {"driver": '"slurm"', "slots": "2", "wall": '"10m"', "interval": '"1s"', **more}
    lines = [f"{key} = {value}" for key, value in keys.items()]
    variables = [f'{name} = "{value}"' for name, value in slurm.environment.items()]
    text = ["[local]\npilots = 0\n[sites.alpha]", *lines, "[sites.alpha.environment]", *variables]
    (place.here / "covey.toml").write_text("\n".join(text) + "\n")


# -- this machine --------------------------------------------------------------------------------


def test_this_machine_is_a_site(place: Place) -> None:
    found = place.covey("site", "list")
    assert "no server runs here" in found.stderr
    ran = place.covey("site", "test", "local", "--json")
    trial = json.loads(ran.stdout)
    assert trial["works"] is True
    kinds = [step["kind"] for step in trial["trial"]["steps"]]
    assert kinds[0] == "asked"
    assert kinds[-1] == "ready"
    wait_until(lambda: sites(place)["local"]["pilots"] == 0)
    told = place.covey("site", "edit", "local", "slots=3", status=2).stderr
    assert "its settings are in [local]" in told
    told = place.covey("site", "add", "local", "driver=slurm", status=1).stderr
    assert "which is in covey.toml" in told


def test_added_sites_stay_and_are_changed_while_the_server_runs(place: Place) -> None:
    place.covey("site", "add", "lab", "driver=manual", "price=2", "users=ann")
    assert sites(place)["lab"]["spec"]["price"] == 2
    assert "- price = 2" in place.covey("site", "edit", "lab", "price=3").stdout
    place.covey("site", "pause", "lab")
    place.covey("stop")
    place.covey("run", "--", "true")
    found = sites(place)["lab"]
    assert (found["status"], found["price"], found["origin"]) == ("paused", 3.0, "added")
    assert "it is paused" in place.covey("explain", "site", "lab").stdout
    place.covey("site", "remove", "lab")
    wait_until(lambda: list(sites(place)) == ["local"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["driver=slrum"], "there is no driver 'slrum'; did you mean 'slurm'?"),
        (["driver=slurm", "options.partion=a"], "did you mean 'partition'?"),
        (["driver=slurm", "wal=2h"], "unknown key 'wal'; did you mean 'wall'?"),
        (["driver=ssh"], "hosts"),
    ],
)
def test_what_is_no_site_is_refused(place: Place, words: list[str], told: str) -> None:
    assert told in place.covey("site", "add", "x", *words, status=2).stderr
    assert "x" not in sites(place)


def test_a_site_that_nothing_can_be_done_with_stops_no_other(place: Place) -> None:
    (place.here / "covey.toml").write_text('[sites.odd]\ndriver = "nowhere"\n')
    place.covey("run", "--", "true")
    assert "there is no driver 'nowhere'" in sites(place)["odd"]["trouble"]
    assert "there is no driver 'nowhere'" in place.log()


# -- a cluster -----------------------------------------------------------------------------------


def test_a_cluster_of_the_file(place: Place, slurm: Slurm) -> None:
    describe(place, slurm)
    told = place.covey("site", "test", "alpha")
    assert "submitted; the site calls it " in told.stdout
    assert "its pilot calls the server, from " in told.stdout
    assert "site alpha works: a pilot in " in told.stderr
    ran = place.covey("run", "-p", "i=1..4", "--", "sleep", "0.1")
    assert "4 tasks done" in ran.stdout
    assert sites(place)["alpha"]["slots"] > 0


@pytest.mark.parametrize(
    ("more", "step", "told"),
    [
        ({"options": '{ partition = "nope" }'}, "refused", "Invalid partition"),
        ({"python": '"python9"'}, "ended", "no python9 on this host"),
        ({"check": '"echo no scratch; exit 3"'}, "left", "exit code 3: no scratch"),
        ({"options": '{ extra = ["--begin=now+1hour"] }'}, "submitted", "in the site's own queue"),
    ],
)
def test_where_a_trial_fails(
    place: Place, slurm: Slurm, more: dict[str, str], step: str, told: str
) -> None:
    describe(place, slurm, **more)
    timeout = "6s" if step == "submitted" else "50s"
    ran = place.covey("site", "test", "alpha", "--timeout", timeout, "--json", status=1)
    found = json.loads(ran.stdout)
    assert (found["works"], found["step"]) == (False, step)
    assert told in found["reason"] + " ".join(found["advice"])
    wait_until(lambda: not sites(place)["alpha"]["waiting"])


def test_ctrl_c_takes_a_trial_back(place: Place, slurm: Slurm) -> None:
    describe(place, slurm, options='{ extra = ["--begin=now+1hour"] }')
    child = place.start("site", "test", "alpha")
    wait_until(lambda: place.directory.exists() and "pilot submitted" in place.log())
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 1
    assert "interrupted" in err
    assert "Traceback" not in out + err
    wait_until(lambda: not sites(place)["alpha"]["waiting"])


def test_a_bag_says_which_sites_could_get_pilots_and_a_site_why_not(
    place: Place, slurm: Slurm
) -> None:
    describe(place, slurm)
    place.covey("site", "pause", "alpha")
    place.covey("submit", "-p", "i=1..4", "--", "true")
    told = place.covey("explain").stdout
    assert "no site can get a pilot for it: alpha: it is paused" in told
    place.covey("site", "resume", "alpha")
    wait_until(lambda: place.bag()["status"] == "finished")
    place.covey("submit", "--cores", "64", "--", "true")
    told = place.covey("explain", "site", "alpha").stdout
    assert "1 task of bag 2 cannot go there: a task needs 64 slots; its pilots have 2" in told


def test_a_site_is_drained(place: Place, slurm: Slurm) -> None:
    describe(place, slurm, options='{ extra = ["--begin=now+1hour"] }')
    place.covey("submit", "-p", "i=1..20", "--", "true")
    wait_until(lambda: sites(place)["alpha"]["waiting"] == 4)
    place.covey("site", "drain", "alpha")
    wait_until(lambda: not sites(place)["alpha"]["waiting"])
    assert slurm.squeue() == []
    time.sleep(1.5)
    assert not sites(place)["alpha"]["waiting"], "nothing new is submitted"
