"""World files: what is read, and what is said about mistakes."""

import re
from pathlib import Path

import pytest

from covey.core.errors import BadConfig
from covey.lab.figures import FIGURES
from covey.lab.world_parts import (
    BackgroundPart,
    BagPart,
    QueuePart,
    ServerPart,
    SitePart,
    Variant,
    WorldFile,
)
from covey.lab.worldfile import built_in, find, parse, policy_of

SITE = '[[sites]]\nname = "a"\npilots = 2\n'
BAG = '[[bags]]\nname = "x"\ntasks = 3\ntime = "5m"\n'
SITE_OF = '[[sites]]\nname = "a"\n'
QUEUE = "[sites.queue]\n"
BACKGROUND = "[sites.queue.background]\n"
DOCS = Path(__file__).parents[3] / "docs" / "lab.md"


def test_a_small_world() -> None:
    found = parse(SITE + BAG + 'policy = { deadline = "10m" }\n', "w")
    assert (found.sites[0].pilots, found.bags[0].time.first) == (2, 300.0)
    assert policy_of(found.bags[0], None).deadline == "10m"


def test_a_variant_comes_on_top_of_the_bags_policy() -> None:
    text = SITE + BAG + 'policy = { deadline = "10m", rank = "1" }\n'
    text += '[[variants]]\nname = "v"\npolicy = { rank = "2" }\n'
    found = parse(text, "w")
    policy = policy_of(found.bags[0], found.variants[0])
    assert (policy.deadline, policy.rank) == ("10m", "2")


def test_a_site_may_be_several() -> None:
    found = parse(SITE + "copies = 3\n" + BAG, "w")
    assert [site.name for site in found.sites] == ["a-1", "a-2", "a-3"]
    with pytest.raises(BadConfig, match="copies must be from 1"):
        parse(SITE + "copies = 0\n" + BAG, "w")


@pytest.mark.parametrize("name", built_in())
def test_every_world_that_comes_along_is_right(name: str) -> None:
    assert find(name).title


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sites = 3 4", "w:1: this is not TOML"),
        (SITE, "missing required field `bags`"),
        (SITE + BAG + "colour = 1\n", r"no key 'colour' in bags\[0\]; there are name, tasks"),
        (SITE + "pilotes = 3\n" + BAG, r"no key 'pilotes' in sites\[0\]; did you mean 'pilots'"),
        ("[server]\nleese = 3\n" + SITE + BAG, "no key 'leese' in server; did you mean 'lease'"),
        ("tittle = 'x'\n" + SITE + BAG, "no key 'tittle'; did you mean 'title'"),
        (
            SITE + 'speed = "quick"\n' + BAG,
            r"'quick': write a number or time such as 10m.*sites\[0\]\.speed",
        ),
        (SITE + 'pilots = "many"\n', "not TOML"),
        (SITE + "failed = 1.5\n" + BAG, "site a: failed is a share: from 0 to 1, not 1.5"),
        (SITE + "preempted = 0.5\n" + BAG, "preempted_over belong together"),
        (SITE + "hosts = 1\n" + BAG, "2 pilots need as many hosts, not 1"),
        (SITE + SITE + BAG, r"sites\[1\]: the name 'a' is empty or taken"),
        (SITE + BAG + 'after = "y"\n', "after = 'y' must be a bag before this one"),
        (SITE + BAG + 'policy = { rang = "1" }\n', "'rang' in a policy; did you mean 'rank'"),
        (SITE + BAG + 'policy = { rank = "1 +" }\n', "bag x: policy: Rank: "),
        (
            SITE + BAG + "policy = { rank = 1 }\n",
            "policy: it must be text, not a whole number",
        ),
        (SITE + "availability = [[60, 0.5], [30, 1.0]]\n" + BAG, "the earliest first"),
        ('columns = ["tale"]\n' + SITE + BAG, "no figure 'tale'; did you mean 'tail'"),
        (SITE + BAG + "paper = { tale = 3 }\n", "x: paper: there is no figure 'tale'"),
        (SITE + BAG + 'broker = "rom"\n', "x: there is no broker 'rom'; did you mean 'room'"),
        (SITE_OF + QUEUE + "weight = -1\n" + BAG, "weight cannot be below 0"),
        ("tail = 1.0\n" + SITE + BAG, "tail is a share"),
        (SITE + QUEUE + BAG, "either it has pilots, or a queue"),
        ('[[sites]]\nname = "a"\n' + BAG, "site a: it needs a queue, or pilots"),
        (SITE_OF + QUEUE + "wall = 0\n" + BAG, "site a: queue: wall must be above 0"),
        (SITE_OF + QUEUE + "ramp = 0\n" + BAG, "site a: queue: ramp must be from 1"),
        (SITE_OF + QUEUE + "start_failures = 2\n" + BAG, "start_failures is a share"),
        (SITE_OF + QUEUE + "load = [[9, 1], [3, 2]]\n" + BAG, "queue: load is a list"),
        (SITE_OF + QUEUE + "cores = 8\nwait = 3\n" + BAG, "waits follow from the background"),
        (SITE_OF + QUEUE + BACKGROUND + "every = 3\n" + BAG, "a background needs cores"),
        (SITE_OF + QUEUE + "cores = 8\n" + BACKGROUND + BAG, "either a trace, or jobs"),
        (
            SITE_OF + QUEUE + "cores = 8\n" + BACKGROUND + 'trace = "a"\nload = [[0, 1]]\n' + BAG,
            "the load of a trace is its own",
        ),
        (SITE_OF + QUEUE + "wating = 3\n" + BAG, r"sites\[0\].queue; did you mean 'wait'"),
        (
            SITE_OF + QUEUE + BACKGROUND + "tine = 3\n" + BAG,
            r"'tine' in sites\[0\].queue.background; did you mean 'time'",
        ),
        ("[server]\ntick = 0\n" + SITE + BAG, "tick and cycle must be above 0"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, words: str) -> None:
    with pytest.raises(BadConfig, match=words):
        parse(text, "w")


def test_a_world_that_there_is_not() -> None:
    with pytest.raises(BadConfig, match="did you mean 'gridbot-fig9"):
        find("gridbot-fig99")


@pytest.mark.parametrize(
    "table", [WorldFile, ServerPart, SitePart, QueuePart, BackgroundPart, BagPart, Variant]
)
def test_every_key_is_documented(table: type) -> None:
    text = DOCS.read_text(encoding="utf-8")
    keys = set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))
    missing = [one for one in table.__struct_fields__ if one not in keys]  # type: ignore[attr-defined]
    assert not missing


def test_every_figure_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    columns = set(re.findall(r"^\| ([a-z ]+) \|", text, re.MULTILINE))
    assert not [name for name in FIGURES if name.replace("_", " ") not in columns]
