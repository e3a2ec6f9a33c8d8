"""An honest pilot that talks to a server, while somebody sends spoilt copies of all it says. A
second pilot, of another owner, sits by and says nothing.

After every message: an answer that a pilot can understand; no 5xx (but for "come back later" where
the server says so), no exception, the invariants of core hold. What was refused has changed
nothing. What was accepted has changed what its pilot may change, and nothing of the one that sits
by. Without the right secret nothing is accepted. When nothing spoilt was accepted, the honest
message still is.
"""

import hashlib
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from covey.core.protocol.tokens import ANYBODY, hand_job, job_secret
from covey.core.record.actions import RecordEnds, Submitted
from covey.core.record.events import BagSubmitted, TokenIssued
from covey.core.record.model import (
    BagId,
    BagSpec,
    Blob,
    PilotId,
    PilotStatus,
    Placed,
    Role,
)
from covey.core.values.space import Axis, Range
from covey.pilot.protocol.messages import LOST, PILOT_OUTCOMES, PROTOCOL, End, Held
from tests.fuzz.inside import SECRET, TOKEN, Heard, Inside, Told
from tests.fuzz.mutations import Mutator, encode
from tests.property.model import picture

INPUT = b"an input file"
DIGEST = hashlib.sha256(INPUT).hexdigest()
OWNER, OTHER = "ann", "bob"
MOST_SPOILT = 30  # copies of a message
NAMES = ("enrol", "sync", "leave", "printed", "files")
# Ids of jobs that a person cannot have got, with the right secrets nevertheless.
JOBS = [
    "x", "hand-", "hand--", "hand---", "hand-a-1-x", "hand-a-999999999999-x", "hand-a-١٢٣-x",
    "hand-a-9999999999999-x", "hand--2000000-x", "hand-\0-2000000-x", "hand-🐦-2000000-",
    "hand-*-2000000", "hand-" + "o" * 5000 + "-2000000-x",
]  # fmt: skip
OUTCOMES = ("ok", "ok", "ok", "failed", "timeout", "returned", "host", "memory", "setup", "output")
# Of an end, after the outcome.
MORE = [-1, 0, 0.1, 1.0, 0.5, 1000, 0.2, "out", "err", 3, 3, "", '{"a": 1}',
        [["f", 1, "", "eA==", False]]]  # fmt: skip
MOST_TEXT = 100_000
METHODS = ("GET", "PUT", "DELETE", "OPTIONS", "", "\0")
ODD = ("", "/", "..", "\0", "%00", "é", "-1", "9" * 30, "&&", "=", "0", "%", "x" * 3000)


class Good(NamedTuple):
    """A message that the server should accept."""

    name: str  # enrol, sync, leave, printed, get, put
    message: Any
    secret: str
    query: str = ""

    def told(self) -> Told:
        body = self.message if isinstance(self.message, bytes) else encode(self.message)
        method = {"get": "GET", "put": "PUT"}.get(self.name, "POST")
        job = self.message["job"] if self.name == "enrol" else None
        return Told(method, path_of(self.name), self.query, self.secret.encode(), [body], job=job)


def path_of(name: str) -> str:
    return f"/pilot/v1/files/{DIGEST}" if name in ("get", "put") else f"/pilot/v1/{name}"


class Complaint(AssertionError):
    """What the server should not have done; with the message that made it."""


class Talk:
    def __init__(self, server: Inside, chance: random.Random) -> None:
        self.server = server
        self.chance = chance
        # Whose tasks its pilots run. Those that run anybody's are believed of anybody's.
        self.serves = chance.choice((OWNER, OWNER, ANYBODY))
        self.spoil = Mutator(chance)
        self.sent = self.spoilt = 0  # messages, and those of them that are not honest
        self.seen: Counter[tuple[str, int]] = Counter()
        self._pilots = 0
        self._past: list[Told] = []
        self._stray = ["", "wrong", SECRET, TOKEN, "\xe9", "Bearer x", "0.0.0"]  # credentials
        self._before: list[Any] = []

    async def prepare(self) -> None:
        """Work, with an input file; and the pilot that sits by."""
        await self.server.settle()
        self.server.blobs.put_piece(DIGEST, 0, len(INPUT), INPUT)
        for owner, total in ((OTHER, 6), (OWNER, 30), (OWNER, 500)):  # two of the other's wait
            await self._submit(owner, total)
        token = partial(TokenIssued, name="n", role=Role.USER, owner=OTHER, digest="d", expires=0)
        await self.server.gateway.ask(token)[1]
        self._forget()
        enrolled = (await self.server.tell(self._enrol(OTHER).told())).content
        self.other = PilotId(enrolled["pilot"])
        sync = {"pilot": self.other, "epoch": 1, "number": 1, "received": 0, "want": 4}
        answer = (await self.server.tell(Good("sync", sync, enrolled["credential"]).told())).content
        self.others = [Held(1, task[0], task[1], task[2]) for task in answer["tasks"]]
        assert len(self.others) == 4
        self._stray.append(enrolled["credential"])
        self._before = self._picture()

    async def _submit(self, owner: str, total: int) -> None:
        space = Axis("i", Range("0", "1", total))
        placed = (Placed(path="in", blob=Blob(DIGEST, len(INPUT))),)
        spec = BagSpec(
            argv=("true",), space=space, retries=2, breaker=0, inputs=placed, owner=owner
        )
        found = await self.server.gateway.ask(partial(BagSubmitted, spec=spec))[1]
        assert isinstance(found, Submitted)
        if owner == OTHER:
            self.other_bag = BagId(found.bag)

    def _forget(self) -> None:
        """The next message comes from a new pilot."""
        self.pilot, self.credential, self.epoch = 0, "", 0
        self.number = self.received = 0
        self.tasks: list[list[Any]] = []

    # -- what an honest pilot says ---------------------------------------------------------

    def good(self) -> Good:
        if not self.pilot:
            return self._enrol()
        lot = self.chance.random()
        if lot < 0.06:
            leave = {"pilot": self.pilot, "epoch": self.epoch, "reason": "dinner"}
            return Good("leave", leave, self.credential)
        if lot < 0.18:
            pieces = [[task[1], task[2], self.epoch, task[0], 1, 0, "text"] for task in self.tasks]
            return Good("printed", {"pilot": self.pilot, "pieces": pieces}, self.credential)
        if lot < 0.23 and self.tasks:
            name = self.chance.choice(("get", "put"))
            query = f"pilot={self.pilot}"
            if name == "put":
                query += f"&attempt={self.epoch}.{self.tasks[0][0]}&offset=0&size={len(INPUT)}"
            return Good(name, INPUT if name == "put" else b"", self.credential, query)
        return Good("sync", self._sync(), self.credential)

    def _enrol(self, owner: str = "", job: str = "") -> Good:
        """As a pilot that was never seen before, on a job of its own."""
        self._pilots += 1
        job = job or hand_job(owner or self.serves, 2e6, str(self._pilots))
        tags = {"os": "linux", "cpu": "x86"}
        enrol = {"key": f"key of pilot {self._pilots:06}", "host": "n1", "slots": 4,
                 "site": "hand", "job": job, "tags": tags, "version": "1", "protocol": PROTOCOL,
                 "memory_mb": 4000, "disk_mb": 9000, "gpus": 0, "machine": "ab12", "boot": "c",
                 "shared": True}  # fmt: skip
        return Good("enrol", enrol, job_secret(SECRET, job))

    def _sync(self) -> dict[str, Any]:
        ended = self.tasks[: self.chance.randrange(len(self.tasks) + 1)]
        ends = [
            [self.epoch, task[0], task[1], task[2], self.chance.choice(OUTCOMES), *MORE]
            for task in ended
        ]
        return {"pilot": self.pilot, "epoch": self.epoch, "number": self.number + 1,
                "received": self.received, "want": self.chance.choice((0, 4, 6)), "ends": ends,
                "held": None, "tags": {"load": "1"}}  # fmt: skip

    def _took(self, good: Good, heard: Heard) -> None:
        """The honest pilot reads an answer."""
        if good.name == "enrol":
            self.pilot, self.credential = heard.content["pilot"], heard.content["credential"]
            self.epoch = heard.content["epoch"]
            self._stray = [*self._stray[:8], *self._stray[-5:], self.credential]
        elif good.name == "leave":
            self._forget()
        elif good.name == "sync":
            answer = heard.content
            ended = {end[1] for end in good.message["ends"]}
            self.number = self.received = good.message["number"]
            tasks = [*self.tasks, *answer["tasks"]]
            self.tasks = [task for task in tasks if task[0] not in ended]
            assert not answer["resync"]
            if answer["cancels"] or answer["recalls"]:  # no more ours: simplest to start afresh
                self._forget()

    # -- and what becomes of it --------------------------------------------------------------

    async def round(self) -> None:
        """One honest message, after many that are not."""
        good = self.good()
        spoilt = False
        most = 4 if good.name == "enrol" else MOST_SPOILT
        for _ in range(self.chance.choice((0, 0, 2, most))):
            self.spoilt += 1
            told = self._spoil(good)
            heard = await self._tell(told)
            if heard.status in (200, 0) and told.path.endswith(("enrol", "sync", "leave")):
                spoilt = good.name != "enrol"
                await self._undo(told, heard)
            if spoilt:
                break
        heard = await self._tell(self._by_either_way(good.told()))
        if spoilt:  # who knows what it said
            await self._leave(self.pilot, self.credential)
            self._forget()
        elif heard.status not in (200, 206):
            raise Complaint(f"an honest {good} was refused: {heard}")
        else:
            self._past = [*self._past[-30:], good.told()]
            self._took(good, heard)

    def _by_either_way(self, told: Told) -> Told:
        sync = told.path == path_of("sync") and told.method == "POST"
        return told._replace(quick=sync and self.chance.random() < 0.5)

    async def _undo(self, told: Told, heard: Heard) -> None:
        """A pilot that was enrolled by accident goes again."""
        if heard.status == 200 and told.path.endswith("enrol"):
            await self._leave(heard.content["pilot"], heard.content["credential"])

    def _forged(self) -> bytes:
        """What says that it is this pilot's, under a seal that the server has not made."""
        return f"{self.pilot}.9999999999.{'0' * 64}".encode()

    async def _leave(self, pilot: int, credential: str) -> None:
        leave = {"pilot": pilot, "epoch": self.epoch or 1, "reason": ""}
        await self._tell(Good("leave", leave, credential).told())

    def _spoil(self, good: Good) -> Told:
        chance = self.chance
        if good.name == "enrol":  # whoever enrols with the same key or job takes its place
            good = self._enrol("", chance.choice(JOBS) if chance.random() < 0.1 else "")
        told, lot = good.told(), chance.random()
        if lot < 0.05 and self._past:
            return self._by_either_way(chance.choice(self._past))
        if lot < 0.10:
            shown = [*map(_bytes, self._stray), self._forged(), None]
            told = told._replace(secret=chance.choice(shown))
        elif lot < 0.12:
            cut = chance.randrange(len(told.parts[0]) + 1)
            told = told._replace(parts=[told.parts[0][:cut]], hangs_up=True)
        elif lot < 0.14:
            told = told._replace(method=chance.choice(METHODS))
        elif lot < 0.16:
            told = told._replace(path=self._torn(told.path))
        elif good.name in ("get", "put"):
            told = told._replace(query=self._torn(told.query))
        elif lot < 0.20 and good.name in ("sync", "printed"):
            told = told._replace(parts=[encode(self._of_others(good))])
        else:
            body = self.spoil.message(good.message)
            cut = chance.randrange(len(body) + 1)
            parts = [body] if chance.random() < 0.9 else [body[:cut], b"", body[cut:]]
            told = told._replace(parts=parts)
        return self._by_either_way(told)

    def _of_others(self, good: Good) -> Any:
        """The same, but of what the other pilot has."""
        mine, theirs = self.chance.choice(self.others), self.chance.choice(self.others)
        if good.name == "printed":
            piece = [mine.bag, mine.task, mine.epoch, theirs.sequence, 1, 0, "not mine"]
            return {**good.message, "pieces": [*good.message["pieces"], piece]}
        row = [mine.epoch, theirs.sequence, mine.bag, mine.task]
        if self.chance.random() < 0.5:
            row[1] += self.chance.choice((-1, 1, 1000))  # an attempt that it does not have
        end = [*row, self.chance.choice(OUTCOMES), *MORE]
        if self.chance.random() < 0.5:
            return {**good.message, "ends": [*good.message["ends"], end]}
        held = [[self.epoch, task[0], task[1], task[2]] for task in self.tasks]
        return {**good.message, "ends": [], "held": [*held, row]}

    def _torn(self, text: str) -> str:
        at = self.chance.randrange(len(text) + 1)
        whole = text[:at] + self.chance.choice(ODD) + text[at + self.chance.choice((0, 1, 5)) :]
        # Pilots' addresses only: here nobody calls as a person.
        return "/pilot/v1/" + whole[10:] if text.startswith("/pilot/v1/") else whole

    async def _tell(self, told: Told) -> Heard:
        self.sent += 1
        self.server.state.pilots[self.other].heard = self.server.ports.time  # it is well
        self.server.tails.follow(self.other_bag)
        try:
            heard = await self.server.tell(told)
            self._judge(told, heard)
        except Complaint:
            raise
        except Exception as error:
            raise Complaint(f"{type(error).__name__}: {error}\nafter {told}") from error
        name = told.path.split("/")[3]
        self.seen[name if name in NAMES else "other", heard.status] += 1
        return heard

    # -- what is right ---------------------------------------------------------------------

    def _judge(self, told: Told, heard: Heard) -> None:
        after = self._picture()
        before, self._before = self._before, after
        self.server.state.check()
        if self.serves == OWNER and self._others_part(before) != self._others_part(after):
            raise Complaint(f"what is not its own changed:\n{before}\n{after}\nby {told}")
        self._judge_rows(told)
        if heard.status == 0:
            return  # it had hung up; what it had said whole may count
        if heard.status >= 500 and not (heard.status == 503 and "retry-after" in heard.headers):
            raise Complaint(f"{heard}\nafter {told}")
        if heard.status >= 400:
            self._judge_refusal(told, heard)
            if before != after:
                words = f"it was refused ({heard.body!r}), and changed:"
                raise Complaint(f"{words}\n{before}\n{after}\nby {told}")
        elif heard.status not in (200, 206):
            raise Complaint(f"{heard}\nafter {told}")
        elif told.method == "POST" and not isinstance(heard.content, dict):
            raise Complaint(f"no answer: {heard}\nafter {told}")
        elif told.secret in (None, self._forged(), *map(_bytes, self._stray[:8])):
            raise Complaint(f"whoever has no secret was let in: {heard}\nafter {told}")

    def _judge_refusal(self, told: Told, heard: Heard) -> None:
        problem = heard.content
        words = problem["status"] == heard.status and problem["detail"] and problem["type"]
        if not words or heard.headers["content-type"] != "application/problem+json":
            raise Complaint(f"no problem document: {heard}\nafter {told}")

    def _judge_rows(self, told: Told) -> None:
        """What was written into the record."""
        written, self.server.ports.written[:] = list(self.server.ports.written), []
        for change in written:
            odd = out_of_range(change)
            if odd:
                raise Complaint(f"no record can keep {odd}\nby {told}")
            for row in change.ends if isinstance(change, RecordEnds) else ():
                if row.bag == self.other_bag and self.serves == OWNER:
                    raise Complaint(f"an end was recorded that is not its own: {row}\nby {told}")

    def _picture(self) -> list[Any]:
        """What core knows, but for who was heard: that may clear a suspicion."""
        state = self.server.state
        found: list[Any] = picture(self.server.scheduler)
        for number, pilot in enumerate(state.pilots.values()):
            if pilot.status is PilotStatus.SUSPECTED:
                found[8][number][1] = PilotStatus.ACTIVE
        found += [
            dict(state.histories.machines),
            dict(state.access.tokens),
            self.server.tails.read(self.other_bag, -1, 0),
        ]
        return found

    def _others_part(self, found: list[Any]) -> list[Any]:
        """Of a picture: the other pilot, its bag, and what no pilot can change."""
        bags = [bag for bag in found[7] if bag[0] == self.other_bag]
        pilots = [pilot for pilot in found[8] if pilot[0].id == self.other]
        return [found[0], found[3], found[6], bags, pilots, found[9], found[15:]]


def out_of_range(value: Any) -> str:
    """What no database keeps as it is, in what is to be written: large numbers, endless texts,
    outcomes that there are not."""
    if isinstance(value, int | float):
        return "" if -(2**53) <= value <= 2**53 else repr(value)
    if isinstance(value, str):
        return "" if len(value) <= MOST_TEXT else f"{len(value)} characters"
    if isinstance(value, End) and value.outcome not in (*PILOT_OUTCOMES, LOST):
        return f"the outcome {value.outcome!r}"
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    elif isinstance(value, dict):
        value = (*value, *value.values())
    parts = value if isinstance(value, list | tuple) else ()
    return next(filter(None, map(out_of_range, parts)), "")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


async def talk(folder: Path, chance: random.Random, messages: int) -> Talk:
    """A fresh server, and so many spoilt messages to it."""
    found = Talk(Inside(folder), chance)
    await found.prepare()
    while found.spoilt < messages:
        await found.round()
    return found
