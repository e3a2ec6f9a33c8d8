"""Reads the public cases in data/ as questions and what is to be answered."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).with_name("data")


class Row(NamedTuple):
    """`wanted` is as in parity.txt: U, E, B:true, I:1, R:0.5, S:text; or `same`/`diff`, where the
    expression is a list of two."""

    source: str
    line: int
    expression: str
    wanted: str
    ad: str = "[]"

    @property
    def name(self) -> str:
        return f"{self.source}:{self.line}"


def _lines(name: str) -> list[tuple[int, str]]:
    text = (DATA / name).read_text(encoding="utf-8")
    return list(enumerate(text.splitlines(), start=1))


def parity() -> Iterator[Row]:
    for number, line in _lines("parity.txt"):
        if line and not line.startswith("#"):
            wanted, expression = line.split("\t", 1)
            yield Row("parity", number, expression, wanted)


def functions() -> Iterator[Row]:
    """Attributes after `MY:`, then what is expected of an expression."""
    attributes: list[str] = []
    for number, line in _lines("functions.txt"):
        if line.startswith("MY:"):
            attributes = []
        elif found := re.match(r"EXPECT: (.*?)\s*FROM (.*)", line):
            ad = "[" + "; ".join(attributes) + "]"
            yield Row("functions", number, found[2].strip(), _plain(found[1].strip()), ad)
        elif line.startswith("  "):
            attributes.append(line.strip())


def _plain(text: str) -> str:
    """A value as HTCondor's test writes it: strings without quotes."""
    known = {"undefined": "U", "error": "E", "true": "B:true", "false": "B:false"}
    if text in known:
        return known[text]
    return f"I:{text}" if re.fullmatch(r"-?\d+", text) and len(text) < 5 else f"S:{text}"


def functional() -> Iterator[Row]:
    """`eval x = …` names an expression, and `$x` stands for it."""
    names: dict[str, str] = {}
    for number, command in _commands("functional_tests.txt"):
        word, _, rest = command.partition(" ")
        rest = re.sub(r"\$(\w+)", lambda found: f"({names.get(found[1], 'error')})", rest)
        if word == "eval":
            name, _, expression = rest.partition("=")
            names[name.strip()] = expression.strip()
        elif word in ("same", "diff"):
            pair = rest.strip().rstrip(";")
            yield Row("functional_tests", number, "{" + pair + "}", word)


def _commands(name: str) -> Iterator[tuple[int, str]]:
    """A command goes on as long as brackets are open."""
    begun, text = 0, ""
    for number, line in _lines(name):
        if not text and (not line.strip() or line.startswith(("//", "#"))):
            continue
        begun = begun if text else number
        text = f"{text} {line.strip()}" if text else line.strip()
        bare = re.sub(r'"(\\.|[^"\\])*"', "", text)
        if sum(bare.count(c) for c in "[{") <= sum(bare.count(c) for c in "]}"):
            yield begun, text
            text = ""


def tokens() -> Iterator[tuple[str, str]]:
    for _, line in _lines("tests.txt"):
        if found := re.match(r"test-lexer-one-token\s+(.*\S)\s+(LEX_\w+)", line):
            yield found[1], found[2]


def ads() -> dict[str, str]:
    """Those of tests.txt, by name."""
    text = (DATA / "tests.txt").read_text(encoding="utf-8")
    found = re.findall(r"^begin-classad (\S+)\s*\n(.*?)^end-classad", text, re.M | re.S)
    return dict(found)


def evaluations() -> Iterator[Row]:
    """`evaluate AD EXPRESSION`: tests.txt does not say to what; the reference does."""
    known = ads()
    for number, line in _lines("tests.txt"):
        if found := re.match(r"evaluate (\S+)\s+(.*?);?$", line):
            yield Row("tests", number, found[2], "as the reference", known[found[1]])


def matches() -> Iterator[tuple[str, str, str, bool]]:
    """Which way, the two ads, and whether they match."""
    known = ads()
    for _, line in _lines("tests.txt"):
        if found := re.match(r"test-match (\w+) (\S+) (\S+) (\w+)", line):
            yield found[1], known[found[2]], known[found[3]], found[4] == "ExpectMatch"
