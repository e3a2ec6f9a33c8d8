"""Files made at random: good ones mean what they were made from, damaged ones are refused."""

import string
from pathlib import Path
from typing import Any

from hypothesis import example as such_as
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.bagfile import example, gather, parse_sheet, read_draft
from covey.core.bags.bag_check import check_spec
from covey.core.errors import InvalidBag
from covey.core.record.model import BagSpec, Condition, Need, Rule
from covey.core.values.space import Axis, Product, Range, Values
from tests.unit.bagfile.draft.test_draft import EVERYTHING

NAMES = st.from_regex(r"[a-z][a-z_0-9]{0,5}", fullmatch=True).filter(
    lambda name: name not in ("task", "bag", "cores", "memory", "disk", "gpus", "time")
)
TEXT = st.text(st.characters(exclude_categories=["C"]), max_size=20)
WORD = TEXT.filter(lambda text: "{" not in text)
NUMBER = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALAR = TEXT | NUMBER


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(name)} = {toml(item)}" for name, item in value.items()) + "}"
    return repr(value)


def read(text: str, told: list[str] | None = None) -> BagSpec:
    heard = [] if told is None else told
    sheet = parse_sheet(text, "bag.toml", "/")
    return read_draft(sheet, {}, heard.append).spec


@st.composite
def axes(draw: st.DrawFn) -> list[tuple[Any, Axis]]:
    """Values as they are written, and what they are."""
    found: list[tuple[Any, Axis]] = []
    for name in draw(st.lists(NAMES, unique=True, max_size=4)):
        if draw(st.booleans()):
            items = draw(st.lists(SCALAR, min_size=1, max_size=4))
            found.append((items, Axis(name, Values(tuple(items)))))
        else:
            first, count = draw(st.integers(-99, 99)), draw(st.integers(1, 200))
            text = f"{first}..{first + count - 1}"
            found.append((text, Axis(name, Range(str(first), "1", count))))
    return found


@st.composite
def files(draw: st.DrawFn) -> tuple[str, BagSpec]:
    made = draw(axes())
    space = Product(tuple(axis for _, axis in made))
    argv = ["prog", *draw(st.lists(WORD, max_size=3)), *(f"{{{axis.name}}}" for _, axis in made)]
    need = Need(
        cores=draw(st.integers(1, 64)),
        memory_mb=draw(st.integers(1, 10**6)),
        gpus=draw(st.integers(0, 8)),
        limit_seconds=float(draw(st.integers(0, 10**6))),
    )
    outputs = draw(st.lists(st.from_regex(r"[a-z]+(/[*a-z]+)?", fullmatch=True), max_size=3))
    labels = draw(st.dictionaries(NAMES, TEXT, max_size=3))
    env = draw(st.dictionaries(st.text(string.ascii_uppercase, min_size=1), TEXT, max_size=3))
    spec = BagSpec(
        argv=tuple(argv),
        space=space,
        name=draw(TEXT),
        notes=draw(TEXT),
        open=draw(st.booleans()),
        labels=labels,
        env=env,
        outputs=tuple(outputs),
        need=need,
        retries=draw(st.integers(0, 9)),
        breaker=draw(st.integers(0, 99)),
        idempotent=draw(st.booleans()),
        ok_codes=tuple(draw(st.lists(st.integers(0, 255), min_size=1, max_size=3))),
        rules=tuple(
            Rule(
                when=(Condition(name=axis.name, values=(1,)),),
                need=Need(**{**_fields(need), "cores": 7}),
            )
            for _, axis in made[:1]
        ),
    )
    top = {
        "command": argv, "name": spec.name, "notes": spec.notes, "open": spec.open,
        "labels": labels, "environment": env, "outputs": outputs, "breaker": spec.breaker,
        "parameters": {axis.name: written for written, axis in made},
        "idempotent": spec.idempotent, "retries": {"count": spec.retries},
        "validate": {"exit": list(spec.ok_codes)},
    }  # fmt: skip
    lines = [f"{name} = {toml(value)}" for name, value in draw(st.permutations(list(top.items())))]
    lines += ["", "[resources]", f"cores = {need.cores}", f'memory = "{need.memory_mb} MB"']
    lines += [f"gpus = {need.gpus} # so many", f"time = '{need.limit_seconds:.0f}s'"]
    for rule in spec.rules:
        lines += ["[[resources.when]]", f"{rule.when[0].name} = 1", "cores = 7"]
    return "\n".join(lines), spec


def _fields(need: Need) -> dict[str, Any]:
    return {name: getattr(need, name) for name in need.__struct_fields__}


@given(files())
def test_a_file_means_what_it_was_made_from(made: tuple[str, BagSpec]) -> None:
    text, spec = made
    assert read(text) == spec
    check_spec(spec)


DAMAGE = st.lists(
    st.tuples(
        st.integers(0, 3000),
        st.integers(0, 40),
        st.sampled_from(
            ["", "x", "=", "[", "]", "{", "}", '"', "'", "\n", "#", ".", "1", "-1", "true", "[[t]]"]
            + ["{x}", "\0", "é", "..", "/", "*", "inf", "1979-05-27", "0xFFFFFFFFFFFFFFFFFFFFFF"]
        ),
    ),
    min_size=1,
    max_size=4,
)
GOOD = EVERYTHING.replace('alpha = ".."', "alpha = '..1'")
WITH_FILES = """
command = "python3 fit.py {case}"
rows = "cases.csv"
inputs = ["fit.py", "data/", "cases/{case}.json", "*.nc",
          {from = "fit.py", to = "x/y", copy = true}, {url = "https://example.org/a", to = "b"}]
outputs = ["*.dat"]
[validate]
files = ["a b"]
[parameters]
n = {from = 1, to = 2}
m = {file = "values.txt"}
"""


@settings(max_examples=500)
@given(st.sampled_from([GOOD, example("x.toml"), WITH_FILES]), DAMAGE)
@such_as(WITH_FILES, [(0, 0, "x")])
def test_damage_is_refused_in_words(text: str, damage: list[tuple[int, int, str]]) -> None:
    for at, length, instead in damage:
        at = at % len(text) if text else 0
        text = text[:at] + instead + text[at + length :]
    here = Path(__file__).parent
    try:
        sheet = parse_sheet(text, "bag.toml", str(here))
        draft = read_draft(sheet, {}, lambda told: None)
        gather(draft, lambda told: None)
    except InvalidBag as error:
        told = str(error).splitlines()
    else:
        told = []
    assert all(line.startswith(("bag.toml", "…")) for line in told)
