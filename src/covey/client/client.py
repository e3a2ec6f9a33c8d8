"""The REST API as Python calls, named like the record's own reader where they overlap."""

import secrets
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from covey.client.http import Connection, Endpoint, Find, Tell, quiet
from covey.core.errors import NotFound, ServerAway
from covey.core.model import BagSpec
from covey.wire import BagView, Output, PilotView, ResultRow, RunningRow, ServerView

T = TypeVar("T")
BagRef = int | Literal["latest"]
API = "/api/v1"


class Submitted(Struct):
    """`known`: an equal key had been submitted before, and this is that bag."""

    bag: int
    total: int
    known: bool


class Count(Struct):
    count: int


class Client:
    """Not for several threads. Any call may raise ServerAway or Refused."""

    def __init__(
        self,
        address: str,
        token: str,
        *,
        patience_seconds: float = 30.0,
        timeout_seconds: float = 10.0,
        find: Find | None = None,
        tell: Tell = quiet,
    ) -> None:
        self.connection = Connection(
            Endpoint(address, token),
            patience_seconds=patience_seconds,
            timeout_seconds=timeout_seconds,
            find=find,
            tell=tell,
        )

    def close(self) -> None:
        self.connection.close()

    def submit(self, spec: BagSpec) -> Submitted:
        """The bag is durable when this returns. Without a key it gets one of its own, so that a
        submission repeated after a lost answer is the same bag."""
        if not spec.key:
            spec = msgspec.structs.replace(spec, key=secrets.token_hex(16))
        return self._post("/bags", Submitted, body=msgspec.json.encode(spec))

    def bags(self) -> list[BagView]:
        """Newest first."""
        return self._get("/bags", list[BagView])

    def bag(self, bag: BagRef, *, wait_seconds: float = 0.0, seen: int = -1) -> BagView | None:
        """With `wait_seconds`, answers when done + failed is not `seen` or the bag is over."""
        query: dict[str, Any] = {}
        if wait_seconds:
            query = {"wait": wait_seconds, "seen": seen}
        try:
            return self._get(f"/bags/{bag}", BagView, query, wait_seconds)
        except NotFound:
            return None

    def results(
        self,
        bag: int,
        after: int = -1,
        limit: int = 1000,
        *,
        by_row: bool = False,
        failed_only: bool = False,
        wait_seconds: float = 0.0,
    ) -> list[ResultRow]:
        """Counted results with task number (or row, if `by_row`) greater than `after`."""
        query: dict[str, Any] = {"after": after, "limit": limit}
        query["order"] = "row" if by_row else "task"
        query["failed"] = int(failed_only)
        if wait_seconds:
            query["wait"] = wait_seconds
        return self._get(f"/bags/{bag}/results", list[ResultRow], query, wait_seconds)

    def running(self, bag: int, limit: int = 1000) -> list[RunningRow]:
        return self._get(f"/bags/{bag}/running", list[RunningRow], {"limit": limit})

    def attempts(self, bag: int, task: int) -> list[ResultRow]:
        """Every ended attempt of a task, oldest first."""
        return self._get(f"/bags/{bag}/tasks/{task}", list[ResultRow])

    def output(self, bag: int, task: int) -> Output | None:
        try:
            return self._get(f"/bags/{bag}/tasks/{task}/output", Output)
        except NotFound:
            return None

    def cancel(self, bag: int) -> int:
        """How many tasks will not run, or were stopped."""
        return self._post(f"/bags/{bag}/cancel", Count).count

    def retry(self, bag: int) -> int:
        """How many failed tasks will run again."""
        return self._post(f"/bags/{bag}/retry", Count).count

    def pilots(self, limit: int = 1000) -> list[PilotView]:
        """Newest first."""
        return self._get("/pilots", list[PilotView])[:limit]

    def server(self) -> ServerView:
        return self._get("/server", ServerView)

    def stop(self, *, drain: bool = False) -> int:
        """How many pilots are sent home. A server that is gone before it answers has stopped."""
        patience = self.connection.patience_seconds
        self.connection.patience_seconds = 0.0
        try:
            return self._post("/stop", Count, {"drain": int(drain)}).count
        except ServerAway:
            return 0
        finally:
            self.connection.patience_seconds = patience

    def _get(
        self,
        path: str,
        kind: type[T],
        query: dict[str, Any] | None = None,
        wait_seconds: float = 0.0,
    ) -> T:
        answer = self.connection.request("GET", API + path, query, None, wait_seconds)
        return msgspec.json.decode(answer, type=kind)

    def _post(
        self, path: str, kind: type[T], query: dict[str, Any] | None = None, body: bytes = b""
    ) -> T:
        answer = self.connection.request("POST", API + path, query, body)
        return msgspec.json.decode(answer, type=kind)
