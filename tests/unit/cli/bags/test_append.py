"""`covey append` and `covey close`."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from covey.cli.main import covey
from covey.client.client import BagRef, Client, Submitted
from covey.core.record.model import Rows, Segment
from covey.core.values.space import Axis, Product, Range, Values, Zip
from covey.frontend import bag_places
from covey.wire import BagView, Stored
from tests.unit.cli.builders import bag as view


class Growing(Client):
    """An open bag 3, and a place for files."""

    def __init__(self) -> None:
        super().__init__("http://localhost:1", "token")
        self.segments: list[Segment] = []
        self.keys: list[str] = []
        self.closed: list[BagRef] = []

    def bag(self, bag: BagRef, *, wait_seconds: float = 0.0, seen: int = -1) -> BagView:
        return view(id=3, open=True)

    def append(self, bag: BagRef, segment: Segment, key: str = "") -> Submitted:
        self.segments.append(segment)
        self.keys.append(key)
        return Submitted(bag=3, total=20, known=False)

    def close_bag(self, bag: BagRef) -> int:
        self.closed.append(bag)
        return 0

    def missing(self, digests: Iterable[str]) -> list[str]:
        return []

    def file_state(self, digest: str) -> Stored:
        return Stored(size=0, complete=True)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Growing:
    made = Growing()
    monkeypatch.setattr(bag_places, "client", lambda config: made)
    monkeypatch.chdir(tmp_path)
    return made


def ran(*words: str, status: int = 0) -> Result:
    found = CliRunner().invoke(covey, words)
    assert found.exit_code == status, (found.output, found.exception)
    return found


def test_parameters_are_appended(client: Growing) -> None:
    told = ran("append", "3", "-p", "x=1..3", "-p", "y=a,b").output
    x, y = Axis("x", Range("1", "1", 3)), Axis("y", Values(("a", "b")))
    assert client.segments == [Segment(space=Product((x, y)))]
    assert client.keys[0]
    assert "bag 3 has 20 tasks now" in told
    ran("append", "latest", "--zip", "-p", "x=1,2", "-p", "y=a,b")
    assert isinstance(client.segments[1].space, Zip)
    assert json.loads(ran("append", "3", "-p", "x=1", "--json").output)["total"] == 20


def test_rows_are_appended(client: Growing, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("x\n1\n")
    ran("append", "3", "--rows", "more.csv")
    digest = hashlib.sha256(b"x\n1\n").hexdigest()
    assert client.segments[0].rows == Rows(digest=digest, form="csv", names=(), count=0)
    ran("append", "3", "--lines", "more.csv")
    assert client.segments[1].rows == Rows(digest=digest, form="lines", names=(), count=0)


def test_refusals(client: Growing) -> None:
    assert "say which tasks" in ran("append", "3", status=2).output
    assert "no file none.csv" in str(ran("append", "3", "--rows", "none.csv", status=1).exception)
    assert not client.segments


def test_close(client: Growing) -> None:
    assert "bag 3 is closed" in ran("close", "3").output
    assert client.closed == [3]
    assert json.loads(ran("close", "--json").output) == {"bag": 3, "closed": True}
