"""One owner tries to slip files to another through the cache of a host; real pilots, run by an
ordinary user. Whatever is tried, the other owner's tasks get what their bags name."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.protocol.messages import Body, Input
from tests.integration.pilot_stand import Stand, standing
from tests.integration.test_pilot_sandbox import NOBODY, WAYS, shared, shell
from tests.unit.pilot.standin import digest_of

TOOL = b"#!/bin/sh\necho the right tool\n"
EVIL = b"#!/bin/sh\necho the EVIL tool\n".ljust(len(TOOL))
DATA = b"right data\n" * 1000

# Tries everything on each file and directory below the paths that it is given.
ATTACK = f"""
import os, sys
evil = {EVIL!r}

def forge(path):
    before = os.stat(path)
    os.chmod(path, 0o777)
    with open(path, "r+b") as file:
        file.write((evil * 9999)[:before.st_size])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.chmod(path, before.st_mode & 0o777)

def link(path):
    os.link(path, path + ".linked")
    forge(path + ".linked")
    os.unlink(path + ".linked")

def swap(path):
    before = os.stat(path)
    with open(path + ".new", "wb") as file:
        file.write((evil * 9999)[:before.st_size])
    os.chmod(path + ".new", before.st_mode & 0o777)
    os.utime(path + ".new", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.rename(path + ".new", path)

def shorten(path):
    os.chmod(path, 0o777)
    os.truncate(path, 5)

ways = {{"forge": forge, "link": link, "swap": swap, "shorten": shorten}}
did = []
for top in sys.argv[2:]:
    files = [top] if os.path.isfile(top) else []
    for folder, _, names in os.walk(top):
        files += [os.path.join(folder, name) for name in names]
    for path in files:
        for way in sys.argv[1].split(","):
            try:
                ways[way](path)
                did.append(way)
            except OSError:
                pass
print("did", *sorted(set(did)))
"""


@pytest.fixture
def stands() -> Iterator[tuple[Stand, Stand]]:
    with standing() as first, standing() as second:
        yield first, second


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of nobody's, with room for two pilots."""
    found = Path(tempfile.mkdtemp(prefix="covey-cache-", dir="/tmp"))
    for path in (found, found / "ana", found / "bob"):
        path.mkdir(exist_ok=True)
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    yield found
    shutil.rmtree(found, ignore_errors=True)


def inputs(stand: Stand) -> list[Input]:
    return [
        Input("tool", stand.add(TOOL), len(TOOL), executable=True),
        Input("data", stand.add(DATA), len(DATA)),
    ]


def attack(ways: str, *paths: object) -> str:
    quoted = ATTACK.replace("'", "'\\''")
    return f"/usr/bin/python3 -c '{quoted}' {ways} " + " ".join(map(str, paths))


def honest(bag: int, stand: Stand, owner: str = "bob", setup: bool = True) -> Body:
    """Says what it got, in its setup and in its task."""
    script = "./tool; sha256sum < data"
    return shell(
        bag,
        ("cat $COVEY_SETUP/said; " if setup else "") + script,
        inputs=inputs(stand),
        setup=f"({script}) > said" if setup else "",
        owner=owner,
    )


def right(times: int) -> str:
    return f"the right tool\n{digest_of(DATA)}  -\n" * times


@pytest.mark.parametrize("way", WAYS)
def test_a_shared_pilot(stands: tuple[Stand, Stand], place: Path, way: str) -> None:
    stand = stands[0]
    paths = ("tool", "data", "$COVEY_SETUP", place / "cache", place)
    everything = attack("forge,link,swap,shorten", *paths)
    evil = shell(1, everything, inputs=inputs(stand), setup=everything, owner="ana")
    forging = shell(
        2, attack("forge", *paths), inputs=inputs(stand), setup=attack("forge", "."), owner="ana"
    )
    with shared(stand, place, way):
        ends = stand.wait(stand.give(evil)) + stand.wait(stand.give(forging, 2))
        assert [end.outcome for end in ends] == ["ok"] * 3, ends
        # With its own copies a task may do what it likes.
        assert ends[0].stdout == "did forge link shorten swap\n"
        (end,) = stand.wait(stand.give(honest(3, stand)))
        assert (end.outcome, end.stdout) == ("ok", right(2)), end
        # Nor do tasks of a bag change what its setup made.
        spoil = honest(4, stand)._replace(argv=["sh", "-c", attack("forge,swap", "$COVEY_SETUP")])
        (end,) = stand.wait(stand.give(spoil))
        assert end.stdout == "did\n"
    assert len([asked for asked in stand.asked if asked[0] == "GET"]) == 2  # nothing was spoilt


def test_two_pilots_of_one_unix_user(stands: tuple[Stand, Stand], place: Path) -> None:
    """Without walls, and with one cache: what one owner's task writes to stays with that owner."""
    cache = place / "cache"
    flags = ("--cache", str(cache))
    theirs, ours = stands
    with shared(ours, place / "bob", flags=flags):
        (end,) = ours.wait(ours.give(honest(1, ours)))
        assert end.stdout == right(2)
        with shared(theirs, place / "ana", flags=flags):
            # What it was given, as a link to a cached file.
            evil = shell(1, attack("forge", "tool", "data"), inputs=inputs(theirs), owner="ana")
            evil = evil._replace(setup=attack("forge", "."))
            (end,) = theirs.wait(theirs.give(evil))
            assert end.stdout == "did forge\n"
            (end,) = ours.wait(ours.give(honest(2, ours)))
            assert (end.outcome, end.stdout) == ("ok", right(2)), end
            # And what it finds when it looks for it.
            evil = shell(2, attack("swap,shorten", cache / "files"), owner="ana")
            (end,) = theirs.wait(theirs.give(evil))
            assert end.stdout == "did shorten swap\n"
            (end,) = ours.wait(ours.give(honest(3, ours)))
            assert (end.outcome, end.stdout) == ("ok", right(2)), end
            evil = shell(3, attack("forge", cache / "files"), owner="ana")
            (end,) = theirs.wait(theirs.give(evil))
            assert end.stdout == "did forge\n"
    shutil.rmtree(place / "bob" / "tools")
    # Another server: the old one's answer to the pilot that has left may still be on its way.
    with standing() as again, shared(again, place / "bob", flags=flags):
        (end,) = again.wait(again.give(honest(4, again)))
        assert (end.outcome, end.stdout) == ("ok", right(2)), end
        (log,) = (place / "bob").glob("log")
        assert "was changed; it is fetched again" in log.read_text()


@pytest.mark.parametrize("flags", [(), ("--shared",)], ids=["plain", "shared"])
def test_a_damaged_file_is_fetched_again(
    stands: tuple[Stand, Stand], place: Path, flags: tuple[str, ...]
) -> None:
    """One bit, as a disk might do it; before the pilot began, and while it works."""
    stand, again = stands
    with shared(stand, place, flags=flags):
        assert stand.wait(stand.give(honest(1, stand)))[0].stdout == right(2)
        files = [path for path in (place / "cache" / "files").rglob("*") if path.is_file()]
        assert len(files) == 2
        for path in files:
            before = path.read_bytes()
            path.write_bytes(bytes([before[0] ^ 1]) + before[1:])  # as root: the mode is no help
        assert stand.wait(stand.give(honest(2, stand)))[0].stdout == right(2)
    for path in files:
        before, times = path.read_bytes(), path.stat()
        path.write_bytes(bytes([before[0] ^ 1]) + before[1:])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    shutil.rmtree(place / "tools")
    with shared(again, place, flags=flags):
        assert again.wait(again.give(honest(3, again)))[0].stdout == right(2)
    assert [len([a for a in one.asked if a[0] == "GET"]) for one in stands] == [4, 2]


def test_setups_of_two_owners_are_two(stands: tuple[Stand, Stand], place: Path) -> None:
    """Though all that they see is equal, the number of the bag included (of two servers)."""
    cache = ("--cache", str(place / "cache"))
    theirs, ours = stands
    with shared(theirs, place / "ana", flags=cache), shared(ours, place / "bob", flags=cache):
        evil = honest(7, theirs, owner="ana")
        evil = evil._replace(argv=["sh", "-c", "echo evil > $COVEY_SETUP/said"])
        assert theirs.wait(theirs.give(evil))[0].outcome == "ok"
        (end,) = ours.wait(ours.give(honest(7, ours)))
        assert end.stdout == right(2)
