"""A corrected script, and tasks that run again with it: with real servers and pilots."""

import hashlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.client.client import Client
from covey.core.errors import Refused
from covey.core.record.input_files import InputSummary
from covey.core.record.model import BagSpec, InputChanges, InputSource, Placed
from covey.whoami import user
from covey.wire import ResultQuery, ResultRow
from tests.faults.world import World, open_world
from tests.integration.python_place import Place, wait_until, working_in
from tests.integration.test_holdings import client_of, put

OLD = """
import sys
n = int(sys.argv[1])
assert n % 2 == 0, "odd"
print("old", n, open("data/x").read(), open("own.txt").read())
"""
NEW = OLD.replace('assert n % 2 == 0, "odd"\n', "").replace("old", "new")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for name, text in (
        ("fit.py", OLD),
        ("data/x", "x1"),
        *((f"own/{n}.txt", f"own{n}") for n in (1, 2, 3, 4)),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    yield from working_in(tmp_path, monkeypatch)


def submit() -> covey.Bag:
    return covey.submit(
        ["python3", "fit.py", "{n}"],
        inputs=["fit.py", "data", {"from": "own/{n}.txt", "to": "own.txt"}],
        parameters={"n": [1, 2, 3, 4]},
        setup="cat data/x > $COVEY_SETUP/made",
    ).wait()


def rows(bag: covey.Bag) -> list[ResultRow]:
    return bag.connection.client().results(bag.id, ResultQuery())


def outputs(bag: covey.Bag) -> list[str]:
    return [row.output for row in rows(bag)]


def test_from_python(place: Place) -> None:
    bag = submit()
    assert bag.known.failed == 2
    (place.here / "fit.py").write_text(NEW)
    (place.here / "data/x").write_text("x2")
    (place.here / "own/1.txt").write_text("changed")
    (place.here / "own/3.txt").unlink()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert bag.retry(tasks=[0]) == 1
    changed, gone = (str(one.message) for one in caught)
    assert "fit.py, data/x, own/1.txt have changed" in changed
    assert "own/3.txt is not here any more" in gone
    assert bag.wait().known.failed == 2
    with pytest.warns(UserWarning, match="own/3.txt is not here any more"):
        assert bag.retry(refresh=True) == 2
    bag.wait()
    assert outputs(bag) == ["new 1 x2 changed", "old 2 x1 own2", "new 3 x2 own3", "old 4 x1 own4"]
    assert [row.inputs_version for row in bag.tasks[0].attempts()] == [1, 1, 2]
    assert [row.inputs_version for row in bag.tasks[1].attempts()] == [1]
    versions = bag.view().inputs.versions
    assert [(one.version, one.files, one.names) for one in versions] == [
        (2, 3, ["fit.py", "data/x", "own/1.txt"])
    ]


def test_after_a_restart_the_new_files_stay(place: Place) -> None:
    bag = submit()
    (place.here / "fit.py").write_text(NEW)
    bag.retry(refresh=True)
    bag.wait()
    place.kill_server()
    (place.here / "fit.py").write_text(NEW.replace("new", "newer"))
    with pytest.warns(UserWarning, match="since version 2 was sent, fit.py has changed"):
        bag.retry(tasks=[1], done=True)
    bag.wait()
    assert outputs(bag)[1] == "new 2 x1 own2"
    assert [row.inputs_version for row in bag.tasks[1].attempts()] == [1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bag.retry(tasks=[1], done=True, refresh=True)
    bag.wait()
    assert outputs(bag)[1] == "newer 2 x1 own2"
    assert bag.tasks[1].attempts()[-1].inputs_version == 3


def test_tasks_that_have_not_run_yet_get_the_new_files(place: Place) -> None:
    """The bag still runs; the task that is running keeps its files."""
    (place.here / "slow.py").write_text(
        "import sys, os, time\n"
        "if sys.argv[1] == '1': sys.exit(1)\n"
        "while sys.argv[1] == '2' and not os.path.exists(sys.argv[2]): time.sleep(0.02)\n"
        "print('old')\n"
    )
    go = place.here / "go"
    bag = covey.submit(
        ["python3", "slow.py", "{n}", str(go)],
        inputs="slow.py",
        parameters={"n": [1, 2, *range(3, 40)]},
        resources={"cores": 2},
    )
    wait_until(lambda: bag.view().failed == 1 and bag.view().running == 1)
    (place.here / "slow.py").write_text("print('new')\n")
    assert bag.retry(refresh=True) == 1
    go.touch()
    bag.wait()
    assert outputs(bag) == ["new", "old", *["new"] * 37]
    assert [row.inputs_version for row in rows(bag)] == [2, 1, *[2] * 37]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--slots", "1")
        yield found


@pytest.fixture(scope="module")
def ann(world: World) -> Client:
    """Whose tasks the server's own pilots run: they are not shared."""
    return client_of(world, user())


def failed_bag(client: Client, **fields: Any) -> int:
    bag = client.submit(BagSpec(argv=("false",), **fields)).bag
    wait_until(lambda: (view := client.bag(bag)) is not None and view.over)
    return bag


def test_nobody_gets_anothers_file_into_their_bag(world: World, ann: Client) -> None:
    bob = client_of(world, "bob")
    secret = put(bob, b"bob's secret")
    bag = failed_bag(ann)
    changes = InputChanges(inputs=(Placed(path="in", blob=secret),))
    with pytest.raises(Refused, match="upload these first") as caught:
        ann.retry(bag, changes=changes)
    assert caught.value.status == 409
    for ask in (lambda: bob.retry(bag, changes=changes), lambda: bob.inputs(bag)):
        with pytest.raises(Refused) as caught:
            ask()
        assert caught.value.status == 403
    assert ann.inputs(bag).version == 1


def test_where_files_came_from_is_its_owners_alone(world: World, ann: Client) -> None:
    placed = Placed(path="in", blob=put(ann, b"x"))
    source = InputSource(path="/home/ann/in", to="in")
    bag = failed_bag(ann, inputs=(placed,), sources=(source,), sources_host="laptop")
    seen, others = ann.bag(bag), client_of(world, "bob").bag(bag)
    assert seen is not None
    assert others is not None
    assert (seen.inputs.host, seen.inputs.paths) == ("laptop", ["/home/ann/in"])
    assert others.inputs == InputSummary()
    found = ann.inputs(bag)
    assert (found.inputs, found.sources, found.host) == ([placed], [source], "laptop")


def test_a_server_gets_no_file_that_its_person_never_named(
    world: World, ann: Client, tmp_path: Path
) -> None:
    """An admin submits a bag in ann's name, with a path of ann's as the source of its input."""
    (tmp_path / "secret").write_text("secret")
    bag = failed_bag(
        world.client(),
        owner=user(),
        inputs=(Placed(path="in", blob=put(world.client(), b"x")),),
        sources=(InputSource(path=str(tmp_path / "secret"), to="in"),),
    )
    token = tmp_path / "token"
    token.write_text(ann.connection.endpoint.token)
    token.chmod(0o600)
    place = ["--server", ann.connection.endpoint.address, "--token-file", str(token)]
    ran = world.covey("retry", str(bag), "--failed", "--refresh", *place)
    assert ran.returncode == 1
    assert "you did not submit" in ran.stderr
    digest = hashlib.sha256(b"secret").hexdigest()
    assert ann.missing([digest]) == [digest]


def test_through_a_server_elsewhere(world: World, ann: Client, tmp_path: Path) -> None:
    script, token = tmp_path / "go.sh", tmp_path / "token"
    token.write_text(ann.connection.endpoint.token)
    token.chmod(0o600)
    script.write_text("exit 1\n")
    place = ["--server", ann.connection.endpoint.address, "--token-file", str(token)]
    ran = world.covey("run", *place, "--input", str(script), "--", "sh", "go.sh")
    assert ran.returncode == 1, ran.stderr
    script.write_text("echo better\n")
    ran = world.covey("retry", "--failed", *place)
    assert f"{script} has changed. The tasks run with the files that were sent" in ran.stderr
    assert world.covey("watch", *place).returncode == 1
    ran = world.covey("retry", "--failed", "--refresh", "--watch", *place)
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(world.covey("tasks", "--json", *place).stdout)
    assert [(one["state"], one["inputs_version"]) for one in shown] == [("done", 2)]
    told = world.covey("explain", "latest", "0", *place).stdout
    assert "exit 1" in told
    assert told.count("with version 1 of the inputs") == 2
    assert told.count("with version 2 of the inputs") == 1
    assert "version 2 since" in world.covey("show", *place).stdout
