"""`covey policy`: what decides for a bag, as people see and write it."""

import json
from pathlib import Path

import pytest

from covey.cli.shared.policy_words import changed, from_file
from covey.core.explain.answers import ConditionAnswer, Listed, PolicyFault, PolicyReport
from covey.core.record.model import PolicySpec
from covey.frontend import bag_places
from tests.unit.cli.builders import bag
from tests.unit.cli.source import FakeSource, Look


@pytest.fixture
def alone(look: Look, monkeypatch: pytest.MonkeyPatch) -> Look:
    """No server runs."""
    monkeypatch.setattr(bag_places, "running_client", lambda config: None)
    return look


# -- seeing --------------------------------------------------------------------------------


def test_attributes(look: Look, source: FakeSource) -> None:
    source.listed = [
        Listed(role="Host", name="NumCpus", text="processors", example="8", of="n1"),
        Listed(role="Bag", name="Tail", text="whether …"),
    ]
    ran = look("policy", "attributes")
    assert ran.stdout.splitlines()[1] == "Host.NumCpus  8    processors"
    assert "values are those of n1" in ran.stderr
    assert json.loads(look("policy", "attributes", "--json").stdout)[0]["example"] == "8"
    source.listed = source.listed[1:]
    assert "covey pilot-command" in look("policy", "attributes").stderr


def test_attributes_without_a_server(alone: Look) -> None:
    ran = alone("policy", "attributes")
    assert "Host.ErrorRate" in ran.stdout
    assert "while a server runs" in ran.stderr


def test_show(look: Look, source: FakeSource) -> None:
    source.decides = PolicySpec(
        preset="reliable-tail", rank="3", only_sites=("s",), failover_sites=("cloud",)
    )
    told = look("policy", "show").stdout
    assert told.startswith("bag 3 fits: preset reliable-tail\n  at the bag's end only hosts")
    assert "requirements (from the key only_sites, and from the preset reliable-tail)" in told
    assert "rank (as its owner wrote it)\n  3\n" in told
    assert "tail (the default)" in told
    assert "sticky_tail: true" in told
    assert "failover_sites: cloud" in told
    assert "deadline: not set, so" in told
    assert json.loads(look("policy", "show", "3", "--json").stdout)["policy"]["rank"] == "3"


def test_presets(look: Look) -> None:
    assert "throughput (default)" in look("policy", "presets").stdout
    assert look("policy", "show", "--preset", "frugal").stdout.startswith("preset frugal\n")
    assert len(json.loads(look("policy", "presets", "--json").stdout)) == 4
    wrong = look("policy", "show", "--preset", "frugl", status=1)
    assert "did you mean 'frugal'?" in str(wrong.exception)


# -- writing -------------------------------------------------------------------------------


def test_words() -> None:
    before = PolicySpec(rank="1", only_sites=("a",), sticky_tail=True)
    after = changed(
        before,
        ["JobRequirements=a == b", "Rank=", "only_sites=b, c", "sticky_tail=no", "deadline=30m"],
    )
    assert after == PolicySpec(
        requirements="a == b", only_sites=("b", "c"), sticky_tail=False, deadline="30m"
    )
    assert changed(after, ["sticky_tail=", "only_sites=", "maxreplicas=3"]) == PolicySpec(
        requirements="a == b", deadline="30m", max_replicas="3"
    )


@pytest.mark.parametrize(
    "text",
    [
        'preset = "frugal"\nmax_replicas = 3\nRank = true\nonly_sites = ["a", "b"]',
        '[policy]\npreset = "frugal"\nmax_replicas = 3\nrank = true\nonly_sites = ["a", "b"]',
    ],
)
def test_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    assert from_file(str(path)) == PolicySpec(
        preset="frugal", max_replicas="3", rank="true", only_sites=("a", "b")
    )


def test_a_bag_file_may_just_name_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "bag.toml"
    path.write_text('policy = "frugal"\ncommand = ["true"]')
    assert from_file(str(path)) == PolicySpec(preset="frugal")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rnak = 1", "did you mean 'rank'?"),
        ("rank = [1]", "an expression"),
        ("only_sites = 3", "a list of names"),
        ('sticky_tail = "x"', "true or false"),
        ("rank = \nx = 1", ":1: this is not TOML"),
        (None, "No such file"),
    ],
)
def test_wrong_files(look: Look, tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "policy.toml"
    if text is not None:
        path.write_text(text)
    assert told in look("policy", "set", "3", "--file", str(path), status=2).stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Give KEY=VALUE"),
        (["3"], "Give KEY=VALUE"),
        (["3", "rank=1", "deadline"], "write KEY=VALUE"),
        (["colour=blue"], "there are preset, requirements"),
        (["sticky_tail=maybe"], "true or false"),
    ],
)
def test_wrong_words(look: Look, source: FakeSource, words: list[str], told: str) -> None:
    assert told in look("policy", "set", *words, status=2).stderr
    assert source.told == []


def test_set_checks_first_and_shows_what_changed(look: Look, source: FakeSource) -> None:
    source.decides = PolicySpec(rank="1")
    ran = look("policy", "set", "3", "rank=2", "requirements=Host.NumCpus > 2")
    after = PolicySpec(rank="2", requirements="Host.NumCpus > 2")
    assert source.told == [("check policy", after, 3), ("set policy", 3, after)]
    assert ran.stdout == (
        "bag 3:\n  requirements\n    - nothing\n    + Host.NumCpus > 2\n  rank\n    - 1\n    + 2\n"
    )
    assert "nothing changed" in look("policy", "set", "rank=2").stdout
    told = json.loads(look("policy", "set", "rank=3", "--json").stdout)
    assert (told["before"]["policy"]["rank"], told["after"]["policy"]["rank"]) == ("2", "3")


def test_a_policy_that_cannot_be_is_not_set(look: Look, source: FakeSource) -> None:
    fault = PolicyFault(
        kind="syntax", name="Rank", message="expected )", text="(1", line=1, column=3
    )
    source.report = PolicyReport(faults=[fault], notes=[])
    ran = look("policy", "set", "rank=(1", status=1)
    assert ran.stdout == "rank: line 1, column 3: expected )\n  (1\n    ^\n"
    assert [one[0] for one in source.told] == ["check policy"]


def test_one_that_fits_nobody_is_set_with_a_warning(look: Look, source: FakeSource) -> None:
    source.report = never()
    ran = look("policy", "set", "rank=1")
    assert "this policy is set, but it has problems" in ran.stderr
    assert "never true together: a  and  b" in ran.stderr
    source.view = bag(status="finished")
    assert "its policy has no effect" in look("policy", "set", "rank=1", status=1).stderr


# -- checking ------------------------------------------------------------------------------


def never() -> PolicyReport:
    return PolicyReport(
        faults=[PolicyFault(kind="never", name="JobRequirements", message="it holds on none")],
        notes=["a note"],
        hosts=2,
        parts=[ConditionAnswer(text="a", hosts=1), ConditionAnswer(text="b", hosts=1)],
        apart=[["a", "b"]],
    )


def test_check_asks_for_what_was_named(look: Look, source: FakeSource, tmp_path: Path) -> None:
    source.decides = PolicySpec(rank="1")
    path = tmp_path / "policy.toml"
    path.write_text('tail = "false"')
    for words in ([], ["3"], ["3", "deadline=3"], ["rank=2"], ["--file", str(path), "rank=2"]):
        assert "1 of 2 hosts meet its requirements" in look("policy", "check", *words).stderr
    look("policy", "check", "3", "--file", str(path))
    assert source.told == [
        ("check policy", PolicySpec(rank="1"), 3),
        ("check policy", PolicySpec(rank="1"), 3),
        ("check policy", PolicySpec(rank="1", deadline="3"), 3),
        ("check policy", PolicySpec(rank="2"), None),
        ("check policy", PolicySpec(rank="2", tail="false"), None),
        ("check policy", PolicySpec(tail="false"), 3),
    ]


def test_check_names_who_is_to_blame(look: Look, source: FakeSource) -> None:
    source.report = never()
    ran = look("policy", "check", "3", status=1)
    assert ran.stdout.splitlines() == [
        "requirements: it holds on none",
        " hosts  where this holds",
        "1 of 2  a",
        "1 of 2  b",
        "never true together: a  and  b",
    ]
    assert "a note" in ran.stderr
    assert json.loads(look("policy", "check", "--json", status=1).stdout)["hosts"] == 2


def test_check_without_a_server(alone: Look) -> None:
    ran = alone("policy", "check", "requirements=Host.NumCpus >", status=1)
    assert ran.stdout == (
        "requirements: line 1, column 15: expected an expression\n"
        "  Host.NumCpus >\n                ^\n"
    )
    assert "did you mean" in alone("policy", "check", "rank=Tial", status=1).stdout
    assert "no mistakes found" in alone("policy", "check", "rank=Host.NumCpus").stderr
    assert "no mistakes found" in alone("policy", "check", "3").stderr
    ran = alone("policy", "check", "rank=Host.NumCups")
    assert "did you mean Host.NumCpus?" in ran.stderr
    assert "no other mistakes found" in ran.stderr
