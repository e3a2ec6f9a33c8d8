"""Under which name a server is told to others."""

import threading

import pytest

from covey.server.web import addresses
from covey.server.web.addresses import Names, places


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names that can be looked up; this host is `node`, and 192.0.2.7."""
    found: set[str] = set()
    monkeypatch.setattr(addresses, "host_name", lambda: "node")
    monkeypatch.setattr(addresses, "is_known", lambda name: name in found)
    monkeypatch.setattr(addresses, "_source_address", lambda family, far: "192.0.2.7")
    return found


def test_its_own_name_if_that_can_be_looked_up(known: set[str]) -> None:
    known.add("node")
    assert Names(places("0.0.0.0"), "", "").public() == "node"


def test_a_name_that_nobody_can_look_up_is_not_told(known: set[str]) -> None:
    assert Names(places("0.0.0.0"), "", "").public() == "192.0.2.7"


def test_what_was_given_comes_first(known: set[str]) -> None:
    known.add("node")
    where = places("192.0.2.9")
    assert Names(where, "", "").public() == "192.0.2.9"
    assert Names(where, "covey.example.org", "").public() == "covey.example.org"


def test_a_name_server_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never = threading.Event()
    monkeypatch.setattr(addresses, "NAME_SECONDS", 0.05)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: never.wait())
    monkeypatch.setattr("socket.getfqdn", never.wait)
    monkeypatch.setattr("socket.gethostname", lambda: "node")
    try:
        assert not addresses.is_known("node")
        assert addresses.host_name() == "node"
    finally:
        never.set()
