"""What a shell offers for TAB: bags, presets and columns.

Completion reads the record, or asks a server that runs already. It starts nothing and prints
nothing. If something fails, it offers nothing.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from covey.frontend.bag_places import BagSource

MOST = 200


def bag_names(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The numbers of bags, with their names as help; then the names."""

    def offers(source: "BagSource") -> Iterable[tuple[str, str]]:
        bags = source.bags()[:MOST]
        yield "latest", "the newest bag"
        yield from ((str(bag.id), f"{bag.name} {bag.status}".strip()) for bag in bags)
        yield from ((bag.name, f"bag {bag.id}, {bag.status}") for bag in bags if bag.name)

    return _offered(ctx, incomplete, offers)


def column_names(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The columns of the bag that the command line names. After a comma: the next column."""
    before, comma, _ = incomplete.rpartition(",")

    def offers(source: "BagSource") -> Iterable[tuple[str, str]]:
        from covey.frontend.bag_places import find_bag
        from covey.frontend.columns import fields

        bag = find_bag(source, str(ctx.params.get("bag") or "latest"))
        return ((f"{before}{comma}{field.name}", "") for field in fields(bag))

    return _offered(ctx, incomplete, offers)


def preset_names(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from covey.core.match.policies import PRESETS

    return _items({name: preset.text for name, preset in PRESETS.items()}, incomplete)


def topics(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from covey.cli.help import TOPICS

    return _items(TOPICS, incomplete)


def files(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def directories(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


OFFERS: dict[str, Callable[[click.Context, str], list[CompletionItem]]] = {
    "bag": bag_names,
    "columns": column_names,
    "preset": preset_names,
    "topic": topics,
    "file": files,
    "dir": directories,
}


def _offered(
    ctx: click.Context, incomplete: str, offers: "Callable[[BagSource], Iterable[tuple[str, str]]]"
) -> list[CompletionItem]:
    from covey.cli.shared.commands import settings_of
    from covey.frontend.bag_places import reader

    try:
        texts = dict(offers(reader(settings_of(ctx))))
    except Exception:  # an error message would disturb the line that the person types
        return []
    return _items({name: text for name, text in texts.items() if name.isprintable()}, incomplete)


def _items(texts: dict[str, str], incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=text)
        for name, text in texts.items()
        if name.startswith(incomplete)
    ]
