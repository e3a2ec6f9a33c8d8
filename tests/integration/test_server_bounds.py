"""One person's submission must not end the server, at once or after a restart.

Real servers, called as a person with a token would; others' work goes on whatever is sent.
"""

import json
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import requests

from covey.client.embedded import read_record
from covey.core.record.model import BagSpec
from tests.faults.world import World, kill_process, open_world, wait_until

AXIS: dict[str, Any] = {"type": "axis", "name": "x", "values": {"type": "values", "items": ["1"]}}


def axis(name: str, **values: Any) -> dict[str, Any]:
    return {"type": "axis", "name": name, "values": values}


def range_of(start: str, step: str = "1", count: int = 10) -> dict[str, Any]:
    return axis("x", type="range", start=start, step=step, count=count)


def deep(levels: int) -> dict[str, Any]:
    space = AXIS
    for _ in range(levels):
        space = {"type": "product", "parts": [space]}
    return space


HUGE: dict[str, dict[str, Any]] = {
    "a product of 300 axes": {
        "space": {
            "type": "product",
            "parts": [
                axis(f"a{k}", type="range", start="0", step="1", count=2**62) for k in range(300)
            ],
        }
    },
    "a zip of huge products": {
        "space": {
            "type": "zip",
            "parts": [
                {
                    "type": "product",
                    "parts": [
                        axis(f"a{j}{k}", type="range", start="0", step="1", count=2**31)
                        for k in range(400)
                    ],
                }
                for j in range(2)
            ],
        }
    },
    "digits in a policy": {"policy": {"requirements": "1" * 4400}},
    "a rank of digits": {"policy": {"rank": "1" * 4400 + "K"}},
    "hexadecimal digits": {"policy": {"requirements": "0x" + "f" * 4400}},
    "a huge deadline": {"policy": {"deadline": "9" * 4400 + "d"}},
    "a range beyond memory": {"space": range_of("1e99999999999999")},
    "a range with a huge step": {"space": range_of("0", "1e99999999999999")},
    "a range of 5000 digits": {"space": range_of("1e5000")},
    "a range with many digits": {"space": range_of("1" * 100_000)},
    "a range that leaves 64 bits": {"space": range_of("9223372036854775000", "1", 10_000)},
    "a range to infinity": {"space": range_of("Infinity")},
    "a range of nothing": {"space": range_of("NaN")},
    "a count of 4000 digits": {"space": range_of("0", "1", int("9" * 4000))},
    "a number of 4000 digits": {"space": axis("x", type="values", items=[int("9" * 4000)])},
    "a number of 4000 digits in a rule": {
        "space": AXIS,
        "rules": [{"when": [{"name": "x", "values": [int("9" * 4000)]}], "need": {}}],
    },
    "cores of 4000 digits": {"need": {"cores": int("9" * 4000)}},
    "memory of 4000 digits": {"need": {"memory_mb": int("9" * 4000)}},
    "retries of 4000 digits": {"retries": int("9" * 4000)},
    "exit codes of 4000 digits": {"ok_codes": [int("9" * 4000)]},
    "a file of 4000 digits": {
        "inputs": [{"path": "f", "blob": {"digest": "0" * 64, "size": int("9" * 4000)}}]
    },
    "a million empty products": {
        "space": {
            "type": "product",
            "parts": [{"type": "product", "parts": []} for _ in range(1_000_000)],
        }
    },
    "deep nesting": {"space": deep(300)},
    "an empty command": {"argv": []},
    "a long name": {"name": "n" * 1_000_000},
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as world:
        yield world


class Person:
    """Somebody with a token of role `user`."""

    def __init__(self, world: World, owner: str) -> None:
        record = read_record(world.directory)
        assert record is not None
        self.session = requests.Session()
        self.address = record.address + "/api/v1"
        asked = {"name": owner, "role": "user", "owner": owner}
        own = {"Authorization": f"Bearer {record.token}"}
        made = self.session.post(f"{self.address}/tokens", json=asked, headers=own)
        self.session.headers["Authorization"] = f"Bearer {made.json()['token']}"

    def ask(self, method: str, path: str, body: Any = None) -> requests.Response:
        return self.session.request(method, self.address + path, json=body, timeout=60)


@pytest.fixture(scope="module")
def served(world: World) -> tuple[Person, int]:
    """A server, one who attacks it, and its process."""
    process = world.serve("--pilots", "1")
    return Person(world, "eve"), process.pid


@pytest.mark.parametrize("what", HUGE)
def test_no_submission_ends_the_server(world: World, served: tuple[Person, int], what: str) -> None:
    eve, pid = served
    answer = eve.ask("POST", "/bags", {"argv": ["true"], **HUGE[what]})
    assert answer.status_code in (201, 400, 409, 413), answer.text
    assert len(answer.text) < 10_000
    assert world.server().pid == pid
    if answer.status_code == 400:
        assert answer.json()["type"] == "invalid"
        assert "Error" not in answer.json()["detail"], "a check raised, instead of refusing"


def test_the_server_goes_on_with_others_work(world: World, served: tuple[Person, int]) -> None:
    """After all of that, whatever was accepted of it."""
    for fields in HUGE.values():
        served[0].ask("POST", "/bags", {"argv": ["true"], **fields})
    ran = world.covey("run", "--", "true")
    assert ran.returncode == 0, ran.stderr
    assert world.server().pid == served[1]
    assert not [note for note in world.log_notes() if "internal error" in note["what"]]


def test_no_other_call_with_extreme_numbers_ends_it(
    world: World, served: tuple[Person, int]
) -> None:
    eve, pid = served
    bag = eve.ask("POST", "/bags", {"argv": ["true", "{x}"], "space": AXIS, "open": True})
    number = bag.json()["bag"]
    for fields in HUGE.values():
        if "space" in fields:
            eve.ask("POST", f"/bags/{number}/append", {"segment": {"space": fields["space"]}})
        if "policy" in fields:
            for path in ("/policy/check", f"/bags/{number}/policy/check"):
                assert eve.ask("POST", path, fields["policy"]).status_code in (200, 400)
            eve.ask("PUT", f"/bags/{number}/policy", fields["policy"])
    eve.ask("POST", f"/bags/{number}/retry", {"tasks": [int("9" * 4000)]})
    assert world.server().pid == pid
    assert eve.ask("POST", f"/bags/{number}/cancel").ok


STORED: dict[str, dict[str, Any]] = {
    "a range of 5000 digits": {"space": range_of("1e5000")},
    "a range beyond memory": {"space": range_of("1e99999999999999")},
    "digits in a policy": {"policy": {"requirements": "1" * 4400}},
    "another kind of space": {"space": {"type": "sphere"}},
    "no command": {"argv": 7},
}


def _spoil(world: World, bags: dict[int, dict[str, Any]], garbled: int) -> None:
    """As if an older server had accepted them."""
    connection = sqlite3.connect(world.directory / "covey.db")
    for bag, fields in bags.items():
        (text,) = connection.execute("SELECT spec FROM bags WHERE id = ?", (bag,)).fetchone()
        spec = {**json.loads(text), **fields}
        connection.execute("UPDATE bags SET spec = ? WHERE id = ?", (json.dumps(spec), bag))
    connection.execute("UPDATE bags SET policy = '{\"rank\": 3}' WHERE id = ?", (garbled,))
    connection.commit()
    connection.close()


def test_stored_bags_that_cannot_be_handled_are_quarantined() -> None:
    """The server starts in spite of them, says what they are, works on, and can get rid of them."""
    with open_world() as world:
        process = world.serve("--pilots", "0")
        eve = Person(world, "eve")
        submitted = {"argv": ["true", "{x}"], "space": range_of("0"), "name": "spoilt"}
        made = [eve.ask("POST", "/bags", submitted).json()["bag"] for _ in (*STORED, "garbled")]
        kill_process(process)
        _spoil(world, dict(zip(made[:-1], STORED.values(), strict=True)), made[-1])

        world.serve("--pilots", "1")
        eve = Person(world, "eve")
        for number in made:
            view = eve.ask("GET", f"/bags/{number}").json()
            shown = [view[key] for key in ("status", "owner", "name", "total")]
            assert shown == ["paused", "eve", "spoilt", 10]
            assert view["reason"].startswith("quarantined: "), view
            explained = eve.ask("GET", f"/bags/{number}/explain").json()
            assert "quarantined" in explained["summary"], explained
            for path in ("results", "failures", "running", "files", "tasks/3", "explain?task=3"):
                assert eve.ask("GET", f"/bags/{number}/{path}").ok, path
        assert world.covey("bags").stdout.count("QUARANTINED") == len(made)
        assert "QUARANTINED" in world.covey("show", str(made[0])).stdout
        assert f"{len(made)} of them quarantined" in world.covey("doctor").stdout
        record = read_record(world.directory)
        assert record is not None
        metrics = requests.get(f"{record.address}/metrics", timeout=10).text
        assert f"covey_bags_quarantined {len(made)}.0" in metrics

        ran = world.covey("run", "--", "true")
        assert ran.returncode == 0, ran.stderr
        refused = eve.ask("POST", f"/bags/{made[0]}/resume")
        assert refused.status_code == 400
        assert "covey cancel" in refused.json()["detail"]

        for number in made:
            assert eve.ask("POST", f"/bags/{number}/cancel").ok
            assert eve.ask("POST", f"/bags/{number}/purge?what=all").ok
            wait_until(lambda n=number: eve.ask("GET", f"/bags/{n}").status_code == 404, 30)  # type: ignore[misc]
        assert "QUARANTINED" not in world.covey("bags").stdout


def test_a_stored_bag_may_get_another_policy_and_go_on() -> None:
    """One that was quarantined for its policy alone is whole again when that is changed."""
    with open_world() as world:
        process = world.serve("--pilots", "0")
        eve = Person(world, "eve")
        made = eve.ask("POST", "/bags", msgspec.to_builtins(BagSpec(argv=("true",)))).json()["bag"]
        kill_process(process)
        _spoil(world, {made: {"policy": {"requirements": "1" * 4400}}}, 0)
        process = world.serve("--pilots", "0")
        eve = Person(world, "eve")
        assert "quarantined" in eve.ask("GET", f"/bags/{made}").json()["reason"]
        assert eve.ask("PUT", f"/bags/{made}/policy", {"requirements": "true"}).ok
        kill_process(process)
        world.serve("--pilots", "0")
        world.pilot("--slots", "1", owner="eve")
        eve = Person(world, "eve")
        assert eve.ask("POST", f"/bags/{made}/resume").ok
        assert world.wait_over(made).done == 1


def test_one_persons_policies_do_not_make_others_wait() -> None:
    """151 bags with 900 classes each; their policy is asked again when a pilot's load changes."""
    terms = ", ".join(["Job.x + Pilot.RunningJobs"] * 120)
    bag = {
        "argv": ["true"],
        "space": axis("x", type="values", items=[float(x) for x in range(900)]),
        "policy": {"requirements": f"sum({{{terms}}}) < 0"},
    }
    with open_world() as world:
        process = world.serve("--pilots", "0")
        world.pilot("--slots", "1")
        for _ in range(3):
            world.pilot("--slots", "2", owner="eve")
        eve = Person(world, "eve")
        for _ in range(151):
            assert eve.ask("POST", "/bags", bag).status_code == 201
        for _ in range(3):
            began = time.monotonic()
            assert world.covey("run", "--", "true").returncode == 0
            assert time.monotonic() - began < 20, "a second or two, on a calm machine"
        assert process.poll() is None
        record = read_record(world.directory)
        assert record is not None
        metrics = requests.get(f"{record.address}/metrics", timeout=10).text
        assert "covey_policy_overruns_total" in metrics
        assert "covey_policy_overruns_total 0.0" not in metrics
