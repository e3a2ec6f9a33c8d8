"""Brokers of plugins: found, or listed with the reason why they cannot be used."""

from importlib.metadata import EntryPoint

from covey.broker_plugins import find, usable


class Good:
    def weigh(self, work: object, candidates: object) -> dict[str, float]:
        return {}


class Bad:
    def __init__(self) -> None:
        raise RuntimeError("no")


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{value}", "covey.brokers")


def test_what_works_is_usable_and_the_rest_says_why_not() -> None:
    points = [
        point("good", "Good"),
        point("bad", "Bad"),
        point("none", "Nobody"),
        point("plain", "dict"),
        point("room", "Good"),
    ]
    found = find(points)
    assert list(usable(found)) == ["good"]
    assert found["bad"].problem == "RuntimeError: no"
    assert "Nobody" in found["none"].problem
    assert "AttributeError" in found["plain"].problem
    assert found["room"].problem == "covey has an algorithm of this name"
