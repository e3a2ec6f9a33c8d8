"""Requests that were made to hurt, sent to a real server one after the other.

After each: an answer, never "internal error"; no step of the event loop that takes more than
STEP_SECONDS of processor time whenever the request is sent; no more than MOST_CPU_SECONDS of the
whole server; no more than MOST_MEMORY_KB of memory on top. Now and then, and at the end after a
`kill -9`: an honest bag is still taken, and its tasks are sent.
"""

import hashlib
import http.client
import json
import os
import random
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from covey.server.api.routes import all_calls
from tests.fuzz.evil import Evil
from tests.fuzz.mutations import encode
from tests.fuzz.served import ROLES, Served, new_job

STEP_SECONDS = 0.1
FAR_TOO_LONG = 3  # times STEP_SECONDS
REPEATS = 2  # of a request with a slow step
MOST_CPU_SECONDS = 2.0
MOST_MEMORY_KB = 150_000
ANSWER_SECONDS = 60.0  # on a busy machine
HONEST_EVERY = 150  # requests
# Asked for by name below, or all of them; only one would end the server, and is meant to.
ALL_CALLS = [call for call in all_calls() if call.path != "/api/v1/stop"]
CALLS = (  # what can be asked of a bag, with the names of the query's parts
    ("GET", "", ("seen", "wait")),
    ("GET", "/explain", ("task",)),
    ("GET", "/running", ("limit",)),
    ("GET", "/unfinished", ("after", "limit")),
    ("GET", "/results", ("after", "offset", "limit", "order", "failed", "where", "sort", "format")),
    ("GET", "/results", ("where", "where", "sort")),
    ("GET", "/failures", ("limit",)),
    ("GET", "/files", ("after", "limit")),
    ("GET", "/live", ("task", "after")),
    ("GET", "/tasks/{n}", ()),
    ("GET", "/tasks/{n}/output", ()),
    ("GET", "/policy", ()),
    ("POST", "/close", ()),
    ("POST", "/pause", ()),
    ("POST", "/resume", ()),
    ("POST", "/retry", ()),
    ("POST", "/purge", ("what",)),
)
OTHER_CALLS = (
    ("GET", "/healthz"), ("GET", "/metrics"), ("GET", "/join/{t}"), ("GET", "/api/v1/{t}"),
    ("GET", "/api/v1/server"), ("GET", "/api/v1/pilots"), ("GET", "/api/v1/hosts"),
    ("GET", "/api/v1/bags"), ("GET", "/api/v1/tokens"), ("GET", "/api/v1/sites"),
    ("GET", "/api/v1/sites/{t}/explain"), ("GET", "/api/v1/files/{t}"),
    ("GET", "/api/v1/files/{t}/state"), ("POST", "/api/v1/tokens"), ("POST", "/api/v1/invitations"),
    ("POST", "/api/v1/files/missing"), ("PUT", "/api/v1/files/{t}"), ("PUT", "/api/v1/sites/{t}"),
    ("GET", "/api/v1/policy/attributes"), ("GET", "/api/v1/policy/presets"),
    ("POST", "/api/v1/tokens/{n}/revoke"), ("POST", "/api/v1/pilots/{n}/dismiss"),
)  # fmt: skip


class Asked(NamedTuple):
    method: str
    path: str
    body: bytes
    token: str

    @property
    def name(self) -> str:
        """What was called, without what was said."""
        words = self.path.partition("?")[0].split("/")[1:5]
        return "/".join(word for word in words if word.isalpha() and len(word) < 12)

    def __str__(self) -> str:
        shown = (
            self.body if len(self.body) < 2000 else self.body[:1000] + b" ... " + self.body[-300:]
        )
        return f"{self.method} {self.path[:1500]} ({len(self.body)} bytes) {shown!r}"


class Complaint(AssertionError):
    """What the server should not have done, with the request that made it."""


class Hostile:
    def __init__(
        self, server: Served, pid: int, serve: Callable[[], int], steps: Path, seed: str
    ) -> None:
        """`serve` starts the server again; `steps` is the file of its slow steps."""
        self.server, self.pid = server, pid
        self._serve = serve
        self.chance = random.Random(seed)
        self.evil = Evil(self.chance)
        self.seen: Counter[tuple[str, int]] = Counter()
        self.slowest = 0.0  # seconds of processor time that a request took
        self._steps, self._read = steps, 0
        self._line = self._connect()
        self._bags: list[int] = []
        self._pilot: dict[str, Any] = {}

    def _connect(self) -> http.client.HTTPConnection:
        where = urlsplit(self.server.address)
        found = http.client.HTTPConnection(where.hostname or "", where.port, timeout=ANSWER_SECONDS)
        found.connect()
        found.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def run(self, seconds: float) -> int:
        """How many requests were sent."""
        until, sent = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            self.ask(self.request())
            sent += 1
            if sent % HONEST_EVERY == 0:
                self.be_honest()
        self.be_honest()
        return sent

    def kill_and_serve_again(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.pid = self._serve()

    # -- one request -----------------------------------------------------------------------

    def ask(self, asked: Asked) -> tuple[int, bytes]:
        """Its answer. Raises Complaint."""
        peak_before, cpu_before = self._reset_peak(), self._cpu_seconds()
        try:
            status, body = self._exchange(asked)
        except (OSError, http.client.HTTPException) as error:
            raise Complaint(f"{type(error).__name__}: {error}, after {asked}") from error
        if status >= 500 and not (status == 503 and b"internal" not in body):
            raise Complaint(f"{status} {body[:500]!r}, after {asked}")
        seconds = self._cpu_seconds() - cpu_before
        self.slowest = max(self.slowest, seconds)
        if seconds > MOST_CPU_SECONDS:
            raise Complaint(f"{seconds:.1f} s of the processor, after {asked}")
        grown = self._peak() - peak_before
        if grown > MOST_MEMORY_KB:
            raise Complaint(f"{grown:,} kB more memory, after {asked}")
        slow = self._slow_steps()
        if slow and self._is_slow_again(asked, slow):
            raise Complaint(f"the loop was held: {slow}, after {asked}")
        self.seen[asked.name, status] += 1
        return status, body

    def _is_slow_again(self, asked: Asked, slow: list[Any]) -> bool:
        """Processor time counts for more on a busy machine, up to several times as much. A step
        that takes far too long is always a fault; one that takes a bit too long is a fault if the
        same request does so each time."""
        for _ in range(REPEATS):
            if not slow or max(step[0] for step in slow) > FAR_TOO_LONG * STEP_SECONDS:
                break
            self._exchange(asked)
            slow = self._slow_steps()
        return bool(slow)

    def _exchange(self, asked: Asked) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if asked.token:
            headers["Authorization"] = f"Bearer {asked.token}"
        for last in (False, True):
            try:
                self._line.request(asked.method, asked.path, asked.body, headers)
                response = self._line.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException):
                self._line.close()  # the server may close a line after an answer
                self._line = self._connect()
                if last:
                    raise
        raise AssertionError

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
        raise Complaint("the server has ended")

    def _reset_peak(self) -> int:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self._status("VmRSS:")

    def _peak(self) -> int:
        return self._status("VmHWM:")

    def _cpu_seconds(self) -> float:
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def _slow_steps(self) -> list[Any]:
        with self._steps.open() as file:
            file.seek(self._read)
            lines = file.readlines()
            self._read = file.tell()
        return [json.loads(line) for line in lines]

    # -- which -----------------------------------------------------------------------------

    def request(self) -> Asked:
        ways = (
            (self._submit, 5), (self._of_bag, 5), (self._policy, 3), (self._sync, 4),
            (self._enrol, 1), (self._printed, 1), (self._other, 3), (self._append, 1),
            (self._any_call, 4),
        )  # fmt: skip
        way = self.chance.choices([way for way, _ in ways], [weight for _, weight in ways])[0]
        return way()

    def _token(self) -> str:
        return self.server.tokens[self.chance.choice(("user", "user", "viewer", *ROLES))]

    def _submit(self) -> Asked:
        return self._post("/api/v1/bags", self._maybe_spoilt(self.evil.bag()))

    def _append(self) -> Asked:
        return self._post(
            f"/api/v1/bags/{self._bag()}/append", {"segment": {"space": self.evil.space()}}
        )

    def _policy(self) -> Asked:
        if self.chance.random() < 0.5:
            return self._post("/api/v1/policy/check", {"policy": self.evil.policy()})
        method, path = self.chance.choice((("PUT", ""), ("POST", "/check")))
        body = self._maybe_spoilt(self.evil.policy())
        return Asked(method, f"/api/v1/bags/{self._bag()}/policy{path}", body, self._token())

    def _post(self, path: str, message: Any) -> Asked:
        body = message if isinstance(message, bytes) else encode(message)
        return Asked("POST", path, body, self.server.tokens["user"])

    def _maybe_spoilt(self, message: Any) -> bytes:
        spoilt = self.chance.random() < 0.2
        return self.evil.mutator.message(message) if spoilt else encode(message)

    def _bag(self) -> int:
        return self.chance.choice(self._bags) if self._bags else 1

    def _of_bag(self) -> Asked:
        method, path, names = self.chance.choice(CALLS)
        query = "&".join(
            f"{name}={quote(self._value(name)[:20_000])[:60_000]}"
            for name in names
            if self.chance.random() < 0.5
        )
        path = path.replace("{n}", str(self.chance.choice((0, 1, 2, 10**6, 2**63, -1))))
        body = encode(self.evil.mutator.value()) if method == "POST" else b""
        return Asked(method, f"/api/v1/bags/{self._bag()}{path}?{query}", body, self._token())

    def _value(self, name: str) -> str:
        if name in ("where", "sort"):
            return self.evil.query()
        if name in ("wait", "pilot") and self.chance.random() < 0.5:
            return str(self._pilot.get("id", 1)) if name == "pilot" else "0"
        if name == "wait":
            return self.chance.choice(("0", "0.01", "-1", "nan"))
        if self.chance.random() < 0.5:
            return str(self.evil.number())
        return self.chance.choice(("row", "csv", "true", "1", self.evil.text()))

    def _other(self) -> Asked:
        method, path = self.chance.choice(OTHER_CALLS)
        path = path.replace("{t}", quote(self.evil.text()[:3000], safe="")[:9000] or "x")
        path = path.replace("{n}", str(self.chance.choice((999, 2**63, 10**30, -1))))
        token = self.chance.choice((self._token(), "", "covey_" + "a" * 32, self.evil.text()[:500]))
        token = token.encode("ascii", "replace").decode().replace("\n", " ").replace("\r", " ")
        body = encode(self.evil.mutator.value()) if method != "GET" else b""
        return Asked(method, path, body, token)

    def _any_call(self) -> Asked:
        """One of all that the server describes, so that none is left out."""
        call = self.chance.choice(ALL_CALLS)
        path = re.sub(r"\{([a-z]+)\}", lambda found: self._place(found[1]), call.path)
        query = "&".join(
            f"{name}={quote(self._value(name)[:2000])}"
            for name in call.query
            if self.chance.random() < 0.7
        )
        token = self._token()
        if call.shown != "token":
            self._as_pilot("", {})
            token = self._pilot["credential"]
        body = self.evil.mutator.value() if call.takes is not None else None
        return Asked(call.method, f"{path}?{query}", encode(body) if body else b"", token)

    def _place(self, name: str) -> str:
        """What stands in an address. Never a token that is needed."""
        if name == "bag":
            return self.chance.choice((str(self._bag()), "latest", "0", "nan"))
        if name == "digest":
            return self.chance.choice(("e" * 64, "E" * 64, "e" * 63, hashlib.sha256().hexdigest()))
        if name == "task":
            return self.chance.choice(("0", "1", str(2**63), "-1"))
        return quote(self.evil.text()[:300], safe="") + "x"

    # -- as a pilot ------------------------------------------------------------------------

    def _enrol(self) -> Asked:
        job = new_job()
        enrol = {
            "key": f"key {job}",
            "host": "n1",
            "slots": 4,
            "job": job,
            "tags": self.evil.tags(),
        }
        if self.chance.random() < 0.5:
            enrol[self.chance.choice(("host", "version", "site", "machine"))] = self.evil.text()
        return Asked("POST", "/pilot/v1/enrol", self._maybe_spoilt(enrol), self.server.secret(job))

    def _as_pilot(self, path: str, message: dict[str, Any]) -> Asked:
        if not self._pilot:
            pilot = self.server.pilot()
            self._pilot = {"id": pilot.id, "credential": pilot.credential, "number": 0}
        message["pilot"] = self._pilot["id"]
        return Asked("POST", path, self._maybe_spoilt(message), self._pilot["credential"])

    def _sync(self) -> Asked:
        chance, evil = self.chance, self.evil
        number = chance.choice((1, 2, 3, evil.number()))
        end = [
            chance.choice((1, 2, evil.number())), chance.choice((1, 2, 3)), self._bag(), 0, "ok", 0,
            0, 0.1, 1.0, 0.5, 1000, 0.2, evil.text(), "err", 3, 3, evil.text(),
            chance.choice(('{"a": 1}', evil.text(), '{"a":' * 300)),
            [["f", 1, "", "eA==", False]] * chance.choice((0, 1, 12_000)),
        ]  # fmt: skip
        message = {"epoch": 1, "number": number, "received": 0, "want": 0, "held": None,
                   "ends": [end] * chance.choice((0, 1, 1, 40)), "tags": evil.tags()}  # fmt: skip
        return self._as_pilot("/pilot/v1/sync", message)

    def _printed(self) -> Asked:
        piece = [self._bag(), 0, 1, 1, self.evil.number(), 0, self.evil.text()]
        return self._as_pilot("/pilot/v1/printed", {"epoch": 1, "pieces": [piece] * 3})

    # -- is it well ------------------------------------------------------------------------

    def be_honest(self) -> None:
        """An honest bag is taken, its task is sent to an honest pilot and is done. What was there
        before is cancelled, so that the next round begins with little."""
        token = self.server.tokens["user"]
        listed = self.server.ask("GET", "/api/v1/bags", token=token)
        for bag in listed:
            if bag["status"] in ("running", "paused"):
                self.server.ask("POST", f"/api/v1/bags/{bag['id']}/cancel", token=token)
            if len(listed) > 20 and bag["id"] not in self._bags[:3]:
                self.server.ask("POST", f"/api/v1/bags/{bag['id']}/purge?what=all", token=token)
        name = hashlib.sha256(str(self.chance.random()).encode()).hexdigest()[:8]
        made = self.server.ask("POST", "/api/v1/bags", {"argv": ["true"], "name": name}, token)[
            "bag"
        ]
        self._pilot = {}
        pilot = self.server.pilot()
        self._work(pilot.id, pilot.credential, made)
        space = {
            "type": "axis",
            "name": "p0",
            "values": {"type": "range", "start": "0", "step": "1", "count": 9},
        }
        grows = {"argv": ["true"], "space": space, "open": True}
        self._bags = [made, self.server.ask("POST", "/api/v1/bags", grows, token)["bag"]]

    def _work(self, pilot: int, credential: str, bag: int) -> None:
        until, epoch = time.monotonic() + ANSWER_SECONDS, self._epoch
        for number in range(1, 1000):
            sync = {"pilot": pilot, "epoch": epoch, "number": number, "received": number - 1,
                    "want": 1,
                    "ends": [], "held": [] if number == 1 else None, "tags": {}}  # fmt: skip
            answer = self.server.ask("POST", "/pilot/v1/sync", sync, credential)
            if any(task[1] == bag for task in answer["tasks"]):
                break
            if time.monotonic() > until:
                raise Complaint(f"no task of the honest bag {bag} was sent")
        leave = {"pilot": pilot, "epoch": epoch, "reason": ""}
        self.server.ask("POST", "/pilot/v1/leave", leave, credential)

    @property
    def _epoch(self) -> int:
        return int(self.server.ask("GET", "/api/v1/server")["epoch"])
