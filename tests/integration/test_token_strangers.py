"""A covey.toml that came with a download names a server of its own: it never sees the user's token.

The stranger's server writes down all that it is sent."""

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

TOKEN = "covey_" + "s" * 32


class Stranger(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Recorder)
        self.heard: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Recorder(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Stranger)
        self.server.heard.append(f"{self.requestline} {self.headers.get('authorization')}")
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    server = Stranger()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Person:
    """With a token for a server of their own, in their settings; `project` is what they entered."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.token = self.home / "token"
        for made in (self.home / ".config/covey", self.project):
            made.mkdir(parents=True)
        self.token.write_text(TOKEN)
        self.token.chmod(0o600)
        self.token.chmod(0o600)

    def sets(self, **own: str) -> None:
        _write(self.home / ".config/covey/covey.toml", own)

    def enters(self, **said: str) -> None:
        _write(self.project / "covey.toml", said)

    def runs(self, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        kept = {name: text for name, text in os.environ.items() if not name.startswith("COVEY_")}
        kept.pop("XDG_CONFIG_HOME", None)
        return subprocess.run(
            [sys.executable, "-P", *words],
            env={**kept, "HOME": str(self.home), **environment},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )


def _write(path: Path, said: dict[str, str]) -> None:
    path.write_text("".join(f'{name} = "{value}"\n' for name, value in said.items()))


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_another_server_does_not_get_the_users_token(person: Person, stranger: Stranger) -> None:
    person.sets(server="https://covey.example.org", token_file="~/token")
    person.enters(server=stranger.address)
    done = person.runs("-m", "covey", "bags")
    assert done.returncode == 2
    assert "is sent only to a server that you named yourself" in done.stderr
    assert stranger.address in done.stderr
    assert stranger.heard == []


def test_nor_one_from_the_environment_or_a_program(person: Person, stranger: Stranger) -> None:
    person.enters(server=stranger.address)
    done = person.runs("-m", "covey", "bags", COVEY_TOKEN_FILE=str(person.token))
    assert done.returncode == 2
    program = f"import covey; covey.connect(token={TOKEN!r}, patience_seconds=0)"
    assert "BadConfig" in person.runs("-c", program).stderr
    person.enters(server=stranger.address, token_file="mine")
    assert "BadConfig" in person.runs("-c", program).stderr
    assert stranger.heard == []


def test_nor_past_another_authority(person: Person, stranger: Stranger) -> None:
    person.sets(server=stranger.address, token_file="~/token")
    person.enters(ca="ca.pem")
    done = person.runs("-m", "covey", "bags")
    assert done.returncode == 2
    assert "sets ca = 'ca.pem'" in done.stderr
    assert stranger.heard == []


def test_a_project_does_not_choose_among_the_users_tokens(
    person: Person, stranger: Stranger
) -> None:
    (person.project / "link").symlink_to(person.token)
    for file in ("~/token", str(person.token), "../home/token", "link"):
        person.enters(server=stranger.address, token_file=file)
        done = person.runs("-m", "covey", "bags")
        assert done.returncode == 2
        assert "cannot choose which of your tokens is sent" in done.stderr
    assert stranger.heard == []


def test_a_server_that_the_user_names_is_no_stranger(person: Person, stranger: Stranger) -> None:
    """Nor is one whose token lies in the project itself."""
    person.enters(server=stranger.address)
    words = ("-m", "covey", "--server", stranger.address, "--token-file", "~/token", "bags")
    person.runs(*words)
    assert stranger.heard[-1].endswith(f"Bearer {TOKEN}")
    person.sets(server=stranger.address, token_file="~/token")
    person.runs("-m", "covey", "bags")
    assert len(stranger.heard) > 1
    (person.project / "token").write_text(TOKEN)
    (person.project / "token").chmod(0o600)
    person.sets()
    person.enters(server=stranger.address, token_file="token")
    before = len(stranger.heard)
    person.runs("-m", "covey", "bags")
    assert len(stranger.heard) > before
