"""A bag by its number, name or label, several bags at once, and bags in a list that is filtered."""

import json
from collections.abc import Callable

import click
import pytest
from click.shell_completion import CompletionItem

from covey.cli.shared import completion
from covey.core.errors import NotFound
from covey.frontend import bag_places
from covey.wire import BagView
from tests.unit.cli.builders import bag
from tests.unit.cli.source import FakeSource, Look

BAGS = [
    bag(id=9, name="late", status="paused", labels={"project": "spin"}, owner="ann"),
    bag(id=8, name="twice", labels={"project": "charge"}),
    bag(id=7, name="twice", status="finished", done=10),
    bag(id=6, name="first", status="finished", done=9, failed=1, labels={"kind": "test"}),
]


@pytest.fixture
def bags(source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    def one(number: int | str, **rest: object) -> BagView | None:
        return BAGS[0] if number == "latest" else {bag.id: bag for bag in BAGS}.get(int(number))

    monkeypatch.setattr(source, "bags", lambda: list(BAGS))
    monkeypatch.setattr(source, "bag", one)
    return source


@pytest.mark.parametrize(
    ("reference", "number"),
    [("9", 9), ("late", 9), ("first", 6), ("project=charge", 8), ("spin", 9), ("kind", 6)],
)
def test_a_bag_is_found_by_number_name_or_label(
    bags: FakeSource, look: Look, reference: str, number: int
) -> None:
    assert bag_places.find_bag(bags, reference).id == number
    assert json.loads(look("show", reference, "--json").stdout)["id"] == number


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("twice", "'twice' could be bag 8, 7: use the number of one"),
        ("project", "could be bag 9, 8"),
        ("frist", "did you mean 'first'?"),
        ("zzz", "'covey bags' lists them"),
    ],
)
def test_what_names_no_bag_or_several_is_refused(
    bags: FakeSource, reference: str, words: str
) -> None:
    with pytest.raises(NotFound) as caught:
        bag_places.find_bag(bags, reference)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ([], [9, 8, 7, 6]),
        (["--state", "finished"], [7, 6]),
        (["--label", "project"], [9, 8]),
        (["--label", "project=spin"], [9]),
        (["--label", "project", "--state", "running"], [8]),
        (["--owner", "ann"], [9]),
        (["--name", "t*"], [8, 7]),
        (["--name", "t*", "--limit", "1"], [8]),
    ],
)
def test_the_list_is_filtered(
    bags: FakeSource, look: Look, words: list[str], numbers: list[int]
) -> None:
    found = json.loads(look("bags", *words, "--json").stdout)
    assert [one["id"] for one in found] == numbers


def test_the_list_has_labels_and_owners(bags: FakeSource, look: Look) -> None:
    head, first, *_ = look("bags").stdout.splitlines()
    assert {"labels", "owner"} <= set(head.split())
    assert "project=spin" in first
    assert "none of the 4 bags matches" in look("bags", "--name", "none").stderr


@pytest.mark.parametrize(
    ("number", "word"), [("9", "paused"), ("8", "running"), ("7", "finished"), ("6", "failed")]
)
def test_status_is_one_word(bags: FakeSource, look: Look, number: str, word: str) -> None:
    assert look("status", number).stdout == f"{word}\n"
    assert json.loads(look("status", number, "--json").stdout)["status"] == word


def test_several_bags_are_cancelled_paused_and_resumed(bags: FakeSource, look: Look) -> None:
    look("cancel", "late", "8", "late")
    look("pause", "8", "9")
    look("resume", "8", "9")
    assert [told[:2] for told in bags.told] == [
        ("cancel", 9),
        ("cancel", 8),
        ("pause", 8),
        ("resume", 9),
    ]
    assert len(json.loads(look("cancel", "8", "7", "--json").stdout)) == 2


def test_nothing_is_cancelled_if_one_name_is_wrong(bags: FakeSource, look: Look) -> None:
    look("cancel", "8", "77", status=1)
    assert bags.told == []


Offers = Callable[[click.Context, str], list[CompletionItem]]


def offered(find: Offers, incomplete: str) -> list[str]:
    context = click.Context(click.Command("show"))
    return [item.value for item in find(context, incomplete)]


def test_a_shell_is_offered_bags_columns_and_presets(bags: FakeSource) -> None:
    assert offered(completion.bag_names, "l") == ["latest", "late"]
    assert offered(completion.bag_names, "9") == ["9"]
    assert offered(completion.column_names, "sta") == ["state", "started"]
    assert offered(completion.column_names, "host,cpu") == ["host,cpu_seconds"]
    assert offered(completion.preset_names, "fast") == ["fast-tail"]
    assert offered(completion.topics, "pi") == ["pilots"]


def test_a_shell_is_offered_nothing_where_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, bags: FakeSource
) -> None:
    def broken(config: object) -> bag_places.BagSource:
        raise NotFound("no record")

    monkeypatch.setattr(bag_places, "reader", broken)
    assert offered(completion.bag_names, "") == []
