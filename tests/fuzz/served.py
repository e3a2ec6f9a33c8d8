"""A real server with something in it, and those who call it: people of every role, pilots."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import requests

from covey.client.embedded import read_record
from covey.core.protocol.tokens import hand_job, job_secret, one_word
from covey.core.record.model import BagSpec
from covey.core.values.space import Axis, Range
from tests.faults.world import World, open_world

ROLES = ("viewer", "user", "admin")
SPARE = 20


class Pilot(NamedTuple):
    id: int
    credential: str


class Served(NamedTuple):
    address: str
    own: str  # its own token
    master: str
    tokens: dict[str, str]  # of each role
    kept: set[int]  # the ids of these
    spare: list[int]  # of others
    session: requests.Session

    def ask(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token or self.own}"}
        for _ in range(20):
            found = self.session.request(method, self.address + path, json=body, headers=headers)
            if found.status_code != 503:  # this machine is busy
                break
            time.sleep(float(found.headers["retry-after"]))
        assert found.ok, found.text
        return found.json()

    def secret(self, job: str) -> str:
        return one_word(job, job_secret(self.master, job))

    def pilot(self, slots: int = 4) -> Pilot:
        """A new one."""
        job = new_job()
        enrol = {"key": f"key {job}", "host": "nowhere", "slots": slots, "job": job, "shared": True}
        found = self.ask("POST", "/pilot/v1/enrol", enrol, self.secret(job))
        return Pilot(found["pilot"], found["credential"])

    def bags(self) -> list[int]:
        """New ones: running, open, cancelled, another's."""
        made = []
        for owner, grows in (("ann", False), ("ann", True), ("ann", False), ("bob", False)):
            space = Axis("i", Range("0", "1", 3))
            spec = BagSpec(argv=("true",), space=space, owner=owner, open=grows)
            made.append(self.ask("POST", "/api/v1/bags", msgspec.to_builtins(spec))["bag"])
        self.ask("POST", f"/api/v1/bags/{made[2]}/cancel")
        return made

    def make_tokens(self) -> None:
        for role in (*ROLES, *("viewer",) * SPARE):
            asked = {"name": role, "role": role, "owner": "root" if role == "admin" else "ann"}
            made = self.ask("POST", "/api/v1/tokens", asked)
            if role in self.tokens:
                self.spare.append(made["id"])
            else:
                self.tokens[role] = made["token"]
                self.kept.add(made["id"])


def new_job() -> str:
    return hand_job("*", time.time() + 3600, f"{time.monotonic_ns()}")


def served(world: World, session: requests.Session) -> Served:
    """The server that runs there."""
    record = read_record(world.directory)
    assert record is not None
    master = json.loads((world.directory / "secrets.json").read_text())["secret"]
    found = Served(record.address, record.token, master, {}, set(), [], session)
    found.make_tokens()
    return found


@contextmanager
def open_served() -> Iterator[Served]:
    """It must be there still when it is not needed any more."""
    with open_world() as world, requests.Session() as session:
        process = world.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "0.5"})
        yield served(world, session)
        assert process.poll() is None, f"it has ended:\n{world.log_tail()}"
        log = world.log_file.read_text(errors="replace")
        bad = [
            line
            for line in log.splitlines()
            if re.search("internal error|Traceback|could not", line)
        ]
        assert not bad, bad[0]
