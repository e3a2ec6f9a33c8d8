"""Policies: the fast path is taken, answers as the general one does, and gives way to it."""

import itertools
from typing import Any

import pytest

from covey.classad import ERROR, UNDEFINED, AbsTime, Ad, Context, Policy, parse, parse_ad

POLICY = """
[ JobRequirements = !Tail ? True : regexp("myhost", Host.Name) && Host.ErrorRate < 0.1;
  Rank = !Tail ? 1 : Host.JobsToday;
  ReplicationRequirements = (Job.NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1);
  Concurrency = 2 * Host.NumCpus; Deadline = Concurrency * 2000; Tail = true; Left = 10 ]
"""


def host(**values: Any) -> Ad:
    return Ad({"Name": "is7.myhost", "ErrorRate": 0.05, "JobsToday": 4, "NumCpus": 8, **values})


def fast_only(policy: Policy) -> None:
    """From here on, the general path is a failure."""

    def general(*ads: Ad) -> Any:
        raise AssertionError("not the fast path")

    policy.evaluate.__globals__["general"] = general


def test_the_fast_path_is_taken() -> None:
    policy = Policy(parse_ad(POLICY), ["JobRequirements", "Rank", "Deadline"])
    fast_only(policy)
    assert policy.evaluate(host()) == (True, 4, 32000)
    assert policy.evaluate(host(ErrorRate=0.5, JobsToday=1.5)) == (False, 1.5, 32000)
    assert policy.evaluate(host(Name="elsewhere")) == (False, 4, 32000)


def test_several_roles() -> None:
    policy = Policy(parse_ad(POLICY), ["ReplicationRequirements", "Rank"], ["Host", "Job"])
    job = parse_ad("[NumberOfReplicas = 2; Replica1 = [Host = [ErrorRate = 0.2]]]")
    assert policy.evaluate(host(), job) == (True, 4)
    fast_only(policy)
    job["replica1"]["host"]["errorrate"] = 0.05
    assert policy.evaluate(host(), job) == (False, 4)


def test_what_is_odd_takes_the_general_path() -> None:
    policy = Policy(parse_ad(POLICY), ["JobRequirements", "Rank"])
    for odd in (UNDEFINED, ERROR, "0.05", True, 2**50, float("nan"), 1e18, AbsTime(5), [1]):
        ad = host(ErrorRate=odd, JobsToday=odd)
        assert repr(policy.evaluate(ad)) == repr(policy.general(ad))
    assert policy.evaluate(host(ErrorRate=parse("JobsToday / 100.0")))[0] is True
    assert policy.evaluate(Ad()) == (UNDEFINED, UNDEFINED)
    assert policy.evaluate(host(JobsToday=parse("Tail")))[1] is UNDEFINED


def test_changes_are_noticed() -> None:
    ad = parse_ad(POLICY)
    policy = Policy(ad, ["Rank", "Concurrency", "Left"])
    assert policy.evaluate(host()) == (4, 16, 10)
    ad["Tail"], ad["Left"] = False, 9
    assert policy.evaluate(host()) == (1, 16, 9)
    ad["Concurrency"] = parse("Left + Host.NumCpus")
    assert policy.evaluate(host()) == (1, 17, 9)
    ad["Host"] = Ad({"NumCpus": 1})
    assert policy.evaluate(host()) == (1, 10, 9)
    del ad["Left"]
    assert policy.evaluate(host()) == (1, UNDEFINED, UNDEFINED)


def test_odd_names_are_not_mistaken_for_marks() -> None:
    ad = Ad({"R": parse("!Host.x"), "S": parse("Host.x + 1"), "T": parse("Host.x == Host.y")})
    policy = Policy(ad, ["R", "S", "T"])
    for mark in '=#?"$@':
        for value in (0, True, "a", Ad({"x": 1})):
            beside = Ad({mark + "x": value, mark + "y": value})
            assert policy.evaluate(beside) == (UNDEFINED, UNDEFINED, UNDEFINED)


def test_one_without_a_fast_path_does_not_slow_the_others() -> None:
    ad = parse_ad("[A = time() + Host.X; B = Host.X + 1; C = C; D = nothing(Host.X)]")
    policy = Policy(ad, ["A", "B", "C", "D", "E"])
    policy.context = Context(now=7.0)
    assert policy.evaluate(Ad({"X": 1})) == (8, 2, UNDEFINED, ERROR, UNDEFINED)
    assert policy.evaluate(Ad({"X": "1"})) == (ERROR, ERROR, UNDEFINED, ERROR, UNDEFINED)


def test_ads_are_left_as_they_were() -> None:
    ad, around = parse_ad("[R = Host.X ?: top]"), parse_ad("[top = 3]")
    around["bag"] = ad
    beside = Ad(parent=Ad())
    before = beside.parent
    assert Policy(ad, ["R"]).evaluate(beside) == (3,)
    assert (beside.parent, ad.parent) == (before, around)
    assert "host" not in around


OPERATORS = ["<", "<=", ">", ">=", "==", "!=", "is", "isnt", "+", "-", "*", "/", "%", "&&", "||"]
VALUES = [0, 1, -3, 7, 2**43, 2**53 + 1, 2**63 - 1, -(2**63), 0.0, -0.0, 0.5, -2.5, 1e19, 1e300,
          float("inf"), True, False, "", "a", "A", "b", UNDEFINED, ERROR, AbsTime(5)]  # fmt: skip
SHAPES = [
    "Host.X %s Host.Y",
    "own %s Host.Y",
    "Host.X %s 3",
    "2.5 %s Host.Y",
    'Host.X %s "a"',
    "true %s Host.Y",
    "(Host.X %s Host.Y) ? Host.X : -Host.Y",
    "Host.X * Host.Y * Host.X %s 5",
    "(Host.X %s 1) + (Host.Y - own) * 3",
    "!(Host.X %s Host.Y)",
    "Host.X %s undefined",
]


@pytest.mark.parametrize("op", OPERATORS)
def test_both_paths_agree(op: str) -> None:
    ad = Ad({f"s{n}": parse(shape % op) for n, shape in enumerate(SHAPES)})
    ad["own"] = 4
    names = [name for name in ad if name != "own"]
    policies = [Policy(ad, [name]) for name in names]
    for x, y in itertools.product(VALUES, VALUES):
        beside = Ad({"X": x, "Y": y})
        ad["own"] = x
        for policy in policies:
            assert repr(policy.evaluate(beside)) == repr(policy.general(beside)), (
                unparse_of(ad, policy), x, y)  # fmt: skip


def unparse_of(ad: Ad, policy: Policy) -> str:
    return str(ad[policy.names[0]])


def test_large_results_are_checked() -> None:
    ad = parse_ad("[P = Host.X * Host.X; Q = P * Host.X; R = P + 0.5; S = P / 3; T = 1 << 62]")
    policy = Policy(ad, ["P", "Q", "R", "S", "T"])
    for x in (3, 2**31, 2**32, -(2**42), 2**62, 1e200, -1e200, 0.1):
        beside = Ad({"X": x})
        assert repr(policy.evaluate(beside)) == repr(policy.general(beside))
