"""Texts become trees, trees become the same text again, and mistakes are pointed at."""

import pytest

from covey.classad import Ad, SyntaxProblem, check, parse, parse_ad, unparse
from covey.classad.nodes import Literal, Operation

EXPRESSIONS = [
    "1",
    "-1",
    "- 1",
    "- -1",
    "-(1)",
    "1.5e-3",
    "1e300",
    "1e400",
    "-1e400",
    "-0.0",
    "true",
    "undefined",
    "error",
    '"a\\tb\\"\\\\\\001\\303\\251é"',
    "a",
    "'a b'",
    "'true'.'is'",
    ".a",
    "a.b.c",
    "2 .a",
    "-2 .a",
    "0.5.a",
    "a[1][b]",
    "f()",
    "f(1, a)[0].b",
    "'is'(1)",
    "{}",
    "{1, {2}, [a = 1]}",
    "[]",
    "[a = 1; 'b c' = [c = a]].'b c'.c",
    "!a && -b < +c || ~d == 1",
    "a ? b : c ? d : e",
    "a ? b ? c : d : e",
    "a ?: b ?: c.d",
    "1 + 2 * 3 - 4 / 5 % 6",
    "1 << 2 >> 3 >>> 4",
    "a & b | c ^ d",
    "a is b isnt c != d",
    "a - -1",
    "(a + b) * c",
    'absTime("2020-01-01T01:00:00+01:00")',
    'relTime("1+02:03:04")',
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_round_trip(text: str) -> None:
    read = parse(text)
    assert parse(unparse(read)) == read
    assert unparse(parse(unparse(read))) == unparse(read)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31),
        ("017", 17),
        ("1K", 1024),
        ("1.5m", 1.5 * 2**20),
        ("2B", 2),
        ("-1T", -(2**40)),
        ("-9223372036854775808", -(2**63)),
        (".5", 0.5),
        ('"a" \n "b"', "ab"),
        (r'"\101\044\44\1\400"', "A$$\x01 0"),
        (r'"\a\b\f\n\r\t\v\s\8"', "\a\b\f\n\r\t\vs8"),
        (r'"\303\251"', "é"),
        ("1 // one\n + /* two */ 1", 2),
        ("1 =?= 1", True),
        ("1is 1", True),
        ("10 ?: 2 + 3", 13),
        ("10 ? : 2 + 3", 13),
    ],
)
def test_literals(text: str, value: object) -> None:
    found = parse(text).evaluate()
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("1 +", 3, "an expression"),
        ("a b", 2, "an operator or the end"),
        ("(1", 2, "an operator or )"),
        ("{1; 2}", 2, "an operator, a comma or }"),
        ("f(1,)", 4, "an expression"),
        ("1 ? 2", 5, ": and the value if the condition is false"),
        ("a.1", 1, "an operator or the end"),
        ("a.", 2, "the name of an attribute"),
        ("a.true", 2, "the name of an attribute"),
        ("[a = 1, b = 2]", 6, "an operator, ; or ]"),
        ("[1 = 2]", 1, "the name of an attribute or ]"),
        ("[a 1]", 3, "="),
        ('x == "abc', 5, 'a closing "'),
        ("1 /* x", 2, "a closing */"),
        ("a @ b", 2, "an expression, not '@'"),
        ("08", 0, "a number that does not begin with 0"),
        ("1.", 1, "an operator after the number"),
        ("12ab", 2, "an operator or the end"),
        ("9223372036854775808", 0, "an integer of 64 bits"),
        (r'"a\0"', 0, "a string without a NUL character"),
        ('absTime("")', 8, "a time"),
        ("undefined ?: !true", 13, "an expression"),
        ("", 0, "an expression"),
    ],
)
def test_mistakes_are_pointed_at(text: str, position: int, expected: str) -> None:
    with pytest.raises(SyntaxProblem) as raised:
        parse(text)
    assert (raised.value.position, raised.value.expected) == (position, expected)


def test_the_message_shows_the_place() -> None:
    with pytest.raises(SyntaxProblem) as raised:
        parse("1 +\n  2 + * 3")
    shown = "line 2, column 7: expected an expression\n    2 + * 3\n        ^"
    assert str(raised.value) == shown


HUGE = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "(" * HUGE + "1" + ")" * HUGE,
        "!" * HUGE + "a",
        "a" + ".b" * HUGE,
        "a" + "[0]" * HUGE,
        "1" + " + 1" * HUGE,
        "{" * HUGE,
        "[a = " * HUGE,
        "a ? " * HUGE,
        "a ? b : " * HUGE + "c",
        "a ?: " * HUGE + "b",
        "f(" * HUGE,
        "1||1&&1|1^1&1==1<1<<1+1*(" * 1000,
    ],
    ids=lambda text: text[:8],
)
def test_what_is_too_deep_is_refused(text: str) -> None:
    with pytest.raises(SyntaxProblem):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 75 + "1" + ")" * 75,
        "!" * 190 + "true",
        "0" + " + 1" * 190,
        "false || " * 190 + "true",
        "true ? 1 : " * 70 + "2",
        "{" * 70 + "}" * 70,
        "[a = " * 60 + "1" + "]" * 60,
    ],
    ids=lambda text: text[:8],
)
def test_what_is_deep_is_read_and_evaluated(text: str) -> None:
    read = parse(text)
    assert parse(unparse(read)) == read
    assert repr(read.evaluate(Ad())) != "error"


def test_ads() -> None:
    ad = parse_ad("[;A = 1; a = 2; B = [c = a;];;]")
    assert list(ad) == ["A", "B"]
    assert len(ad) == 2
    assert "a" in ad
    assert "c" not in ad
    assert ad["a"] == 2
    assert unparse(ad) == "[A = 2; B = [c = a]]"
    assert ad == parse_ad("[b = [C = A]; a = 2]")
    assert ad != parse_ad("[b = [C = A]; a = 2.0]")
    with pytest.raises(SyntaxProblem):
        parse_ad("[a = 1] x")
    with pytest.raises(SyntaxProblem):
        parse_ad("a = 1")


def test_text_like_the_reference() -> None:
    written = unparse(parse("[bb = !x; a = {1.5, f(a, -b), \"é\", 'c d'.e}]"), True)
    assert written == r'[ a = { 1.500000000000000E+00,f(a, -b),"\303\251",' + (
        "'c d'.e }; bb =  !x ]"
    )


def test_trees_that_no_text_made_get_parentheses() -> None:
    total = Operation("+", (Literal(1), Literal(2)))
    assert unparse(Operation("*", (total, Literal(3)))) == "(1 + 2) * 3"
    assert unparse(Operation("-", (Literal(3), total))) == "3 - (1 + 2)"
    assert unparse(Operation("?:", (total, Literal(3)))) == "(1 + 2) ?: 3"


def test_check_finds_what_is_not_there() -> None:
    found = check(parse('regexpp("a", Host.Nmae) && size(1, 2) > Tial'), ["Host.Name", "Tail"])
    assert [(each.position, each.message) for each in found] == [
        (0, "there is no function regexpp"),
        (18, "there is no attribute host.nmae"),
        (27, "size takes 1 argument, not 2"),
        (40, "there is no attribute tial"),
    ]
    assert "regexp" in found[0].near
    assert found[1].near == ("Host.Name",)
    assert found[3].near == ("Tail",)
    assert check(parse("nothing(else)"))[0].message == "there is no function nothing"
    assert check(parse("Host.Name == MY.Tail && CurrentTime > 0"), ["host.name", "tail"]) == []
    assert check(parse("TARGET.Memory > 1"), ["Memory"]) == []
    assert len(check(parse("TARGET.Memroy > 1"), ["TARGET.Memory"])) == 1
    assert check(parse_ad("[a = b; b = c.d; c = [d = 1]]"), []) == []
