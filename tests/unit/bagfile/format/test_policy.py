"""A policy in a bag file: what it means, what is wrong with it, what it comes to."""

import pytest

from covey.bagfile.format.policy import POLICY, PolicyOf
from covey.core.errors import InvalidBag
from covey.core.match.policies import PRESETS, Compiled, expand
from covey.core.record.model import PolicySpec
from tests.unit.bagfile.reading import draft

C = "command = 'true'\n"


def policy(text: str) -> PolicySpec:
    return draft(C + text).spec.policy


def complaint(text: str) -> str:
    with pytest.raises(InvalidBag) as caught:
        draft(C + text)
    return str(caught.value)


def test_every_field_is_a_key_and_no_other() -> None:
    assert list(POLICY) == list(PolicySpec.__struct_fields__)


def test_every_key_arrives() -> None:
    found = policy(
        """
[policy]
preset = "fast-tail"
requirements = "Host.Memory > 1"
rank = "Host.NumCpus"
concurrency = "2 * Pilot.Slots"
deadline = "30m"
replication = "true"
tail = "JobsLeft < 5"
sticky_tail = true
max_replicas = "Tail ? 3 : 1"
only_sites = ["a", "b"]
avoid_sites = "c"
only_hosts = "d, e"
avoid_hosts = []
failover_sites = ["a", "a"]
"""
    )
    assert found == PolicySpec(
        preset="fast-tail",
        requirements="Host.Memory > 1",
        rank="Host.NumCpus",
        concurrency="2 * Pilot.Slots",
        deadline="30m",
        replication="true",
        tail="JobsLeft < 5",
        sticky_tail=True,
        max_replicas="Tail ? 3 : 1",
        only_sites=("a", "b"),
        avoid_sites=("c",),
        only_hosts=("d", "e"),
        failover_sites=("a",),
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_a_plain_text_is_the_preset(preset: str) -> None:
    assert policy(f"policy = '{preset}'") == PolicySpec(preset=preset)
    assert policy(f"policy.preset = '{preset}'") == PolicySpec(preset=preset)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rank = 3", PolicySpec(rank="3")),
        ("rank = -2.5", PolicySpec(rank="-2.5")),
        ("rank = 1e-7", PolicySpec(rank="1e-07")),
        ("requirements = true", PolicySpec(requirements="true")),
        ("replication = false", PolicySpec(replication="false")),
        ("max_replicas = 4", PolicySpec(max_replicas="4")),
        ("deadline = 90", PolicySpec(deadline="90")),
        ("deadline = '1.5 h'", PolicySpec(deadline="1.5 h")),
        ("deadline = 'Concurrency * 60'", PolicySpec(deadline="Concurrency * 60")),
        ("rank = ''' 1 +\n  2 '''", PolicySpec(rank="1 +\n  2")),
    ],
)
def test_numbers_times_and_lines(text: str, expected: PolicySpec) -> None:
    found = policy(f"[policy]\n{text}")
    assert found == expected
    Compiled(found)


def test_times_become_seconds() -> None:
    assert expand(policy("policy.deadline = '1.5 h'"))["Deadline"] == "5400"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("policy = 'fast'", "bag.toml:2: policy: there is no preset 'fast'; did you mean 'fast-t"),
        ("policy = 'zzz'", "there is no preset 'zzz'; there are throughput, fast-tail, reliable"),
        ("policy = 3", "bag.toml:2: policy: expected the name of a preset, or a table [policy]"),
        ("[policy]\npreset = 3", "bag.toml:3: policy.preset: there is no preset 3"),
        ("[policy]\nrnak = 1", "bag.toml:3: policy.rnak: there is no such key; did you mean 'rank"),
        ("[policy]\nJobRequirements = 'x'", "did you mean 'requirements'?"),
        ("[policy]\nzzz = 1", "[policy] has preset, requirements, rank"),
        (
            "[policy]\nrequirements = 'Host.Memory >'",
            "bag.toml:3: policy.requirements: line 1, column 14: expected an expression",
        ),
        ("[policy]\nrank = '''\n1 +\n)'''", "policy.rank: line 2, column 1: expected"),
        ("[policy]\nrank = '  '", "it is empty"),
        ("[policy]\nrank = ['x']", "policy.rank: expected an expression in quotes, not a list"),
        ("[policy]\nrank = inf", "expected a number, or an expression; not inf"),
        (f"[policy]\nrank = '{'1+' * 10_001}1'", "at most 5,000 characters"),
        ("[policy]\ndeadline = -1", "expected a number from 0, or an expression; not -1"),
        ("[policy]\ndeadline = '30M'", "expected a time: 90s, 30m, 2h, 1d, or an expression; not"),
        ("[policy]\ndeadline = '30 minutes'", "expected a time: 90s"),
        ("[policy]\nmax_replicas = 0", "expected a number from 1, or an expression; not 0"),
        ("[policy]\nsticky_tail = 'yes'", "policy.sticky_tail: expected true or false, not 'yes'"),
        ("[policy]\nonly_sites = [1]", "policy.only_sites: expected names in quotes, not 1"),
        ("[policy]\nonly_sites = 'a,,b'", "'' is not a name"),
        ("[policy]\nonly_sites = 3", "expected names in quotes, not 3"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str) -> None:
    assert told in complaint(text)


def test_too_many_names() -> None:
    names = ",".join(f"h{number}" for number in range(10_001))
    assert "at most 10,000 sites and hosts" in complaint(f"[policy]\nonly_hosts = '{names}'")


def test_what_the_bag_does_not_allow() -> None:
    told = complaint("idempotent = false\n[policy]\npreset = 'fast-tail'")
    assert (
        "bag.toml:3: policy: tasks must not run twice (idempotent = false), so a policy cannot"
        in told
    )
    told = complaint("[parameters]\nx = '1..5000'\n[policy]\nrank = 'Job.x'")
    assert "bag.toml:4: policy: the policy uses x, with 5,000 different values" in told


def test_the_schema_knows_presets_and_keys() -> None:
    preset, table = PolicyOf().schema()["anyOf"]
    assert preset == {"enum": list(PRESETS)}
    assert list(table["properties"]) == list(POLICY)
