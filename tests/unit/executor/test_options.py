"""What calls need, and executors that are made of others."""

from concurrent.futures import BrokenExecutor, CancelledError
from pathlib import Path
from typing import Any

import pytest

from covey.core.errors import InvalidBag, ServerAway
from covey.core.record.model import PolicySpec
from covey.executor.executor import Executor
from covey.executor.options import Options
from covey.executor.tasks import task
from tests.unit.executor.lane_server import SECONDS, Server


def test_what_makes_no_sense_is_refused_at_once(server: Server) -> None:
    with pytest.raises(TypeError, match=r"covey\.connect"):
        Executor("localhost:8300")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="initializer"):
        Executor(server, initializer=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="chunksize"):
        Executor(server).map(abs, [1], chunksize=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cores": "2"}, r"cores: expected a whole number from 1 to 100,000, not '2'"),
        ({"cores": 0}, "cores: expected a whole number"),
        ({"memory_mb": 1.5}, "memory_mb: expected a whole number"),
        ({"limit_seconds": -1}, "limit_seconds: expected a time"),
        ({"retries": -1}, "retries: expected a whole number"),
        ({"idempotent": "no"}, "idempotent: expected true or false"),
        ({"env": 3}, "env: expected a dictionary of names and values, not 3"),
        ({"env": {"A=B": "1"}}, "env.A=B: the name of a variable must be text, not empty"),
        ({"env": {"A": [1]}}, r"env\.A: expected text"),
    ],
)
def test_wrong_options_are_refused_at_once(
    executor: Executor, server: Server, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidBag, match=rf"^Executor\(\): {words}"):
        Executor(server, **given)
    with pytest.raises(InvalidBag, match=words):
        executor.with_options(**given)
    with pytest.raises(InvalidBag, match=words):
        task(**given)


def test_options_are_taken_as_they_are_meant(server: Server) -> None:
    found = Executor(server, env={"N": 1, "A": Path("b")}, limit_seconds=2, retries=None)  # type: ignore[arg-type]
    assert found._options.env == (("A", "b"), ("N", "1"))
    assert found._options.limit_seconds == 2.0
    assert found.with_options(limit_seconds=None, env={}, cores=1)._options == Options()


def test_other_options_are_another_bag(executor: Executor, server: Server) -> None:
    other = executor.with_options(cores=2, env={"A": "b"})
    assert other is executor.with_options(env={"A": "b"}, cores=2)
    assert executor.submit(abs, -1).result(SECONDS) == 1
    assert server.specs[0].need.cores == 1
    server.total = 0
    server.rows.clear()
    assert other.submit(abs, -2).result(SECONDS) == 2
    assert server.specs[1].need.cores == 2
    assert server.specs[1].env["A"] == "b"


def test_calls_have_a_policy(executor: Executor, server: Server) -> None:
    there = executor.with_options(policy={"only_sites": ("lab",), "deadline": 60})
    assert there is executor.with_options(policy={"deadline": 60, "only_sites": ["lab"]})
    assert there.submit(abs, -1).result(SECONDS) == 1
    assert server.specs[0].policy == PolicySpec(only_sites=("lab",), deadline="60")
    assert Executor(server, policy="frugal")._options.policy == PolicySpec(preset="frugal")
    with pytest.raises(InvalidBag, match=r"^Executor\(\): policy: there is no preset 'fast'"):
        executor.with_options(policy="fast")


def test_those_with_other_options_end_with_this_one(server: Server) -> None:
    for end in (Executor.shutdown, Executor.abort):
        executor = Executor(server)
        child = executor.with_options(cores=2)
        grandchild = child.with_options(retries=1)
        end(executor)
        for one in (executor, child, grandchild):
            with pytest.raises((RuntimeError, CancelledError)):
                one.submit(abs, 1)
            with pytest.raises(RuntimeError, match="after shutdown"):
                one.with_options(gpus=1)
            assert one.with_options() is one


def test_one_that_has_ended_or_broken_has_a_successor(server: Server) -> None:
    with Executor(server) as executor:
        with executor.with_options(retries=1) as first:
            grandchild = first.with_options(cores=2)
        second = executor.with_options(retries=1)
        assert second is not first
        assert second.with_options(cores=2) is not grandchild
        server.error = ServerAway("the server is away")
        with pytest.raises(BrokenExecutor):
            second.submit(abs, -1).result(SECONDS)
        server.error = None
        third = executor.with_options(retries=1)
        assert third.submit(abs, -1).result(SECONDS) == 1
        assert third is executor.with_options(retries=1)
