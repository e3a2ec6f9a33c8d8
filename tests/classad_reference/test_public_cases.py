"""The public cases of other engines: ours keeps them; so does the reference, but for a few."""

import pytest

from covey.classad import UNDEFINED, SyntaxProblem, parse, parse_ad
from tests.classad_reference import cases, ours
from tests.classad_reference.cases import Row
from tests.classad_reference.deviations import SUBSCRIPT
from tests.classad_reference.shapes import Shape, same, show
from tests.classad_reference.stale import STALE

ROWS = [*cases.parity(), *cases.functions(), *cases.functional()]


def wanted_shape(row: Row) -> Shape:
    kind, _, rest = row.wanted.partition(":")
    match kind:
        case "U":
            return ["undefined"]
        case "E":
            return ["error"]
        case "B":
            return ["boolean", rest == "true"]
        case "I":
            return ["integer", int(rest)]
        case "R":
            return ["real", float(rest).hex()]
        case _:
            assert kind == "S", row
            return ["string", rest]


def holds(row: Row, found: Shape) -> bool:
    if row.wanted not in ("same", "diff"):
        return same(found, wanted_shape(row))
    if found[0] != "list":
        return False
    one, other = found[2]
    if one[0] == other[0] == "real":  # as == has it: 0.0 is -0.0, and NaN is nothing
        equal = float.fromhex(one[1]) == float.fromhex(other[1])
    else:
        equal = same(one, other)
    return equal == (row.wanted == "same")


def keeps(row: Row, found: Shape) -> bool:
    if row.name in STALE:
        return STALE[row.name] in (None, show(found))
    return holds(row, found)


def test_all_cases_are_read() -> None:
    counts = {name: sum(row.source == name for row in ROWS) for name in {r.source for r in ROWS}}
    assert counts == {"parity": 335, "functions": 65, "functional_tests": 227}
    assert len(list(cases.tokens())) == 47
    assert len(cases.ads()) == 17
    assert len(list(cases.evaluations())) == 43
    assert set(STALE) <= {row.name for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_ours_keeps_it(row: Row) -> None:
    found = ours.answer((row.expression, row.ad, None), 0.0)
    kept = holds(row, found) or keeps(row, found)  # a span is a span, as it once was
    assert kept, f"{row.expression} is {show(found)}, not {row.wanted}"


def test_the_reference_keeps_them() -> None:
    pytest.importorskip("classad2")
    from tests.classad_reference.judge import Judge

    with Judge() as judge:
        answers = judge.answers([(row.expression, row.ad, None) for row in ROWS])
    for row, answer in zip(ROWS, answers, strict=True):
        assert answer is not None, row
        assert keeps(row, answer[0]), f"{row.name}: {row.expression} is {show(answer[0])}"


# -- tests.txt: tokens, ads, evaluations, matches ------------------------------------------------

VALUES = {
    "LEX_INTEGER_VALUE": "integer",
    "LEX_REAL_VALUE": "real",
    "LEX_BOOLEAN_VALUE": "boolean",
    "LEX_STRING_VALUE": "string",
    "LEX_UNDEFINED_VALUE": "undefined",
    "LEX_ERROR_VALUE": "error",
}
# Where such a token may stand; `@` is the token.
PLACES = {
    "LEX_IDENTIFIER": "@",
    "LEX_SELECTION": "a@b",
    "LEX_BITWISE_NOT": "@a",
    "LEX_LOGICAL_NOT": "@a",
    "LEX_BOUND_TO": "[a @ 1]",
    "LEX_QMARK": "a @ b : c",
    "LEX_COLON": "a ? b @ c",
    "LEX_SEMICOLON": "[a = 1 @ b = 2]",
    "LEX_COMMA": "{a @ b}",
    "LEX_OPEN_BOX": "a @ 0]",
    "LEX_CLOSE_BOX": "a[0 @",
    "LEX_OPEN_PAREN": "@ a)",
    "LEX_CLOSE_PAREN": "(a @",
    "LEX_OPEN_BRACE": "@ a}",
    "LEX_CLOSE_BRACE": "{a @",
}


@pytest.mark.parametrize(("token", "kind"), list(cases.tokens()))
def test_a_token_is_what_it_should_be(token: str, kind: str) -> None:
    if kind in VALUES:
        assert ours.answer((token, "[]", None), 0.0)[0] == VALUES[kind]
    elif kind == "LEX_TOKEN_ERROR":
        with pytest.raises(SyntaxProblem):
            parse(token)
    else:
        parse(PLACES.get(kind, "a @ b").replace("@", token))


@pytest.mark.parametrize("name", list(cases.ads()))
def test_an_ad_can_be_read(name: str) -> None:
    if name == "Loop":  # `a//b ]`: the comment takes the bracket along; it once looped for ever
        parse_ad(cases.ads()[name])
    assert len(parse_ad(cases.ads()[name])) > 0


def test_ads_evaluate_as_in_the_reference() -> None:
    pytest.importorskip("classad2")
    from tests.classad_reference.judge import Judge

    rows = list(cases.evaluations())
    with Judge() as judge:  # where a subscript is what a selection is to us
        selected = [SUBSCRIPT.sub(r".\1", row.expression) for row in rows]
        asked = zip(selected, rows, strict=True)
        answers = judge.answers([(text, row.ad, None) for text, row in asked])
    for row, answer in zip(rows, answers, strict=True):
        assert answer is not None
        found = ours.answer((row.expression, row.ad, None), 0.0)
        assert same(found, answer[0]), f"{row.name}: {row.expression} is {show(found)}"


@pytest.mark.parametrize(("way", "left", "right", "match"), list(cases.matches()))
def test_ads_match(way: str, left: str, right: str, match: bool) -> None:
    """They say `other` for what is TARGET today, in the reference, too."""
    one, two = (parse_ad(text.replace("other.", "TARGET.")) for text in (left, right))
    if way != "rightMatchesLeft":
        assert (one.evaluate("Requirements", two) is True) == match
    if way != "leftMatchesRight" and match:
        assert (two.evaluate("Requirements", one) is True) == match
    assert one.evaluate("NoSuchThing", two) is UNDEFINED
