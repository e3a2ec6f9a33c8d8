"""Where a connection leads, and what it says when it leads nowhere."""

import inspect
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import covey
from covey.client import embedded
from covey.core.errors import BadConfig, NotFound, Refused, ServerAway
from tests.unit.client.fake import FakeServer, Told, problem, serving

STATUS = {
    "version": "1", "epoch": 1, "pid": 1, "started": 1.0, "state": "ready", "store": "x",
    "bags": 0, "pilots": 0, "slots": 2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("COVEY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        fake.answers = [Told(STATUS)]
        yield fake


def test_connecting_starts_nothing_here(here: Path) -> None:
    connection = covey.connect()
    assert connection.place == str(here / ".covey")
    assert repr(connection) == f"<covey.Connection to {here / '.covey'}>"
    assert not (here / ".covey").exists()
    assert (len(connection.bags()), len(connection.pilots()), len(connection.hosts())) == (0, 0, 0)
    assert not (here / ".covey").exists()
    with pytest.raises(NotFound, match=r"no bags here yet; covey\.submit\(…\) makes one"):
        connection.bag()


def test_settings_are_those_of_the_commands(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "covey.toml").write_text("dir = 'theirs'\n[run]\nretries = 3\n")
    assert covey.connect().place == str(here / "theirs")
    assert covey.connect().config.run.retries == 3
    monkeypatch.setenv("COVEY_DIR", "elsewhere")
    assert covey.connect().place == str(here / "elsewhere")
    assert covey.connect(dir=here / "mine").place == str(here / "mine")
    assert covey.connect(slots=3).config.local.slots == 3
    (here / "covey.toml").write_text("dri = 'x'\n")
    with pytest.raises(BadConfig, match="unknown setting 'dri'; did you mean 'dir'"):
        covey.connect()


def test_a_directory_that_is_named_comes_before_a_configured_server(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_SERVER", "http://127.0.0.1:9")
    assert covey.connect(dir="mine").place == str(here / "mine")
    with pytest.raises(BadConfig, match="leave out dir or server"):
        covey.connect(dir="mine", server="http://127.0.0.1:9")


def test_help_shows_the_keywords() -> None:
    assert "parameters" in inspect.signature(covey.submit).parameters
    assert "self" not in inspect.signature(covey.submit).parameters
    assert "The keywords are the keys of a bag file" in (covey.submit.__doc__ or "")


def test_a_server_is_asked_at_once(server: FakeServer) -> None:
    connection = covey.connect(server=server.address, token="secret\n")
    assert connection.place == server.address
    assert server.asked[0].token == "secret"
    assert connection.server().slots == 2


def test_a_token_may_be_in_a_file(
    server: FakeServer, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "token").write_text("from file\n")
    (here / "token").chmod(0o600)
    covey.connect(server=server.address, token_file=here / "token")
    monkeypatch.setenv("COVEY_SERVER", server.address)
    monkeypatch.setenv("COVEY_TOKEN_FILE", str(here / "token"))
    covey.connect()
    assert [one.token for one in server.asked] == ["from file", "from file"]


def test_what_is_missing_or_wrong_is_said_with_what_to_do(server: FakeServer, here: Path) -> None:
    with pytest.raises(BadConfig, match=r"needs a token: connect\(token='…'\)"):
        covey.connect(server=server.address)
    with pytest.raises(BadConfig, match=r"name it with connect\(server='https://…'\)"):
        covey.connect(token="x")
    with pytest.raises(BadConfig, match="is not a PEM certificate"):
        covey.connect(server=server.address, token="x", ca="-----BEGIN CERTIFICATE-----\nx")
    with pytest.raises(BadConfig, match=r"ca .*ca\.pem: No such file"):
        covey.connect(server=server.address, token="x", ca=here / "ca.pem")
    server.answers = [problem(401, "who are you?")]
    with pytest.raises(Refused, match="does not accept this token"):
        covey.connect(server=server.address, token="x")


def test_a_server_that_is_away_is_waited_for_as_long_as_one_likes() -> None:
    with pytest.raises(ServerAway, match=r"cannot reach the server at http://127\.0\.0\.1:9:"):
        covey.connect(server="http://127.0.0.1:9", token="x", patience_seconds=0.1)


def test_each_thread_has_a_line_of_its_own(server: FakeServer) -> None:
    connection = covey.connect(server=server.address, token="x")
    found = [connection.client(), connection.client()]
    thread = threading.Thread(target=lambda: found.append(connection.client()))
    thread.start()
    thread.join()
    assert found[0] is found[1]
    assert found[0] is not found[2]
    with connection:
        pass
    assert connection.client() is not found[0]


def test_a_child_process_has_a_line_of_its_own(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = covey.connect(server=server.address, token="x")
    before = connection.client()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert connection.client() is not before


def test_a_server_that_ends_while_a_bag_is_sent_is_replaced(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    def refuse(*given: object) -> object:
        started.append(given)
        raise ServerAway("it ended")

    monkeypatch.setattr(embedded, "attach_or_start", refuse)
    with pytest.raises(ServerAway):
        covey.submit("true")
    assert len(started) == 2
