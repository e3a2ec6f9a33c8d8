"""Connections of strangers are few, and give way; those of the known are their owners'."""

import pytest

from covey.server.limits.shares import Who
from covey.server.web import connections
from covey.server.web.connections import Connections, Link, place_of
from covey.server.web.problems import HttpProblem


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Door:
    """Lets many in, from many places."""

    def __init__(self, files: int = 1024) -> None:
        self.clock = Clock()
        self.refused: list[str] = []
        self.all = Connections(files, self.clock, self.refused.append)
        self.ended: list[int] = []
        self.count = 0

    def come(self, address: str = "127.0.0.1") -> Link | None:
        number = self.count
        self.count += 1
        return self.all.accept(address, lambda: self.ended.append(number))


def test_the_oldest_stranger_gives_way_when_it_had_its_time() -> None:
    door = Door()
    most = door.all.most_strangers
    assert most == 192
    for _ in range(most):
        assert door.all.room_seconds() == 0
        assert door.come() is not None
    assert door.all.room_seconds() == connections.STRANGER_SECONDS
    door.clock.now += connections.STRANGER_SECONDS
    assert door.all.room_seconds() == 0
    assert door.come() is not None
    assert (door.ended, door.refused, door.all.strangers()) == ([0], ["connection"], most)


def test_one_place_has_not_all() -> None:
    door = Door()
    links = [door.come("192.0.2.7") for _ in range(200)]
    share = connections.STRANGERS_FROM_ONE_PLACE * door.all.most_strangers
    assert sum(link is not None for link in links) == share
    assert door.come("192.0.2.8") is not None
    door.clock.now += connections.STRANGER_SECONDS
    assert door.come("192.0.2.7") is not None
    assert door.ended == [0]


def test_who_is_known_takes_no_strangers_place() -> None:
    door = Door()
    link = door.come()
    assert link is not None
    link.know(Who("alice"))
    link.know(Who("alice"))
    assert (door.all.strangers(), door.all.known.held("alice")) == (0, 1)
    link.know(Who("bob"))  # through a proxy
    assert (door.all.known.held("alice"), door.all.known.held("bob")) == (0, 1)
    link.forget()
    assert (door.all.strangers(), door.all.known.used) == (1, 0)
    link.know(Who("bob"))
    link.close()
    link.close()
    assert (door.all.strangers(), door.all.known.used) == (0, 0)
    link.know(Who("bob"))  # its last request, when it has gone
    assert door.all.known.used == 0


def test_one_owner_has_not_all_connections() -> None:
    door = Door()

    def known(who: Who) -> None:
        link = door.come()
        assert link is not None
        try:
            link.know(who)
        except HttpProblem:
            link.close()
            raise

    def many() -> None:
        for _ in range(1000):
            known(Who("mallory"))

    with pytest.raises(HttpProblem, match="connections: you have 4") as caught:
        many()
    assert caught.value.status == 429
    known(Who("alice"))
    known(Who("", admin=True))


def test_places() -> None:
    assert place_of("127.0.0.1") == place_of("::1") == place_of("::ffff:127.0.0.1") == ""
    assert place_of("192.0.2.7") == place_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert place_of("2001:db8:1:2::5") == place_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert place_of("fe80::1%eth0") == "fe80::/64"
    assert place_of("") == ""
