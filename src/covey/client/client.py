"""The REST API as Python methods. Those that the record's reader has as well have the same
names."""

import secrets
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from covey.client.http import Connection, Endpoint, Find, Tell, quiet
from covey.client.source_seal import seal
from covey.core.errors import InvalidBag, NotFound, Refused, ServerAway, ServerStopped, Unconfirmed
from covey.core.explain.answers import BrokerAnswer, Listed, PolicyReport, ShownPolicy, WeightsAt
from covey.core.record.model import BagSpec, InputChanges, PolicySpec, Segment
from covey.wire import (
    BagView,
    Explanation,
    FailureGroup,
    HostView,
    InputsView,
    Issued,
    LiveOutput,
    Output,
    PilotView,
    ResultQuery,
    ResultRow,
    ReturnedFile,
    RunningRow,
    ServerView,
    SiteExplanation,
    SiteJobView,
    SiteView,
    Stored,
    TokenView,
    TrialView,
    WeightsTable,
)

T = TypeVar("T")
BagRef = int | Literal["latest"]
API = "/api/v1"
SLOW_SECONDS = 600.0  # while the server counts the rows of a large file, or removes a large bag
SHORTEST_KEY = 16
PAGE_ROWS = 1000  # results, if the query has no limit
TOO_LARGE = 413  # HTTP status
SYNC_SECONDS = 60.0  # while the server makes a file durable
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0  # before a file is asked for again


class Submitted(Struct):
    bag: int
    total: int
    known: bool  # the bag existed already, from an earlier submission with the same key


class Count(Struct):
    count: int


def submission_key(key: str | None) -> str:
    """The person's own key, or a new one. Raises InvalidBag for a short key, because somebody else
    may use the same."""
    if key is None:
        return secrets.token_hex(16)
    if len(key) < SHORTEST_KEY or not key.isalnum():
        raise InvalidBag(
            f"key {key!r}: a key has at least {SHORTEST_KEY} letters and digits. Use the one "
            "that covey printed when a submission was not confirmed"
        )
    return key


def with_seal(spec: BagSpec) -> BagSpec:
    """The same bag, with a proof that its input files came from this machine."""
    sealed = seal(spec.sources, spec.task_inputs, spec.manifest)
    return msgspec.structs.replace(spec, sources_seal=sealed)


class Client:
    """Must not be used by several threads. Any method may raise ServerAway or Refused."""

    def __init__(
        self,
        address: str,
        token: str,
        ca: str = "",
        *,
        patience_seconds: float = 30.0,
        timeout_seconds: float = 10.0,
        find: Find | None = None,
        tell: Tell = quiet,
        known: bool = True,
    ) -> None:
        """`known`: a covey server has answered at this address before (see `client.http`)."""
        self.connection = Connection(
            Endpoint(address, token, ca),
            patience_seconds=patience_seconds,
            timeout_seconds=timeout_seconds,
            find=find,
            tell=tell,
            known=known,
        )

    def close(self) -> None:
        self.connection.close()

    # -- bags ------------------------------------------------------------------------------

    def submit(self, spec: BagSpec) -> Submitted:
        """The bag is durable when this returns. A bag without a key gets a new key, so that a
        request that is repeated after a lost answer makes no second bag. Raises Unconfirmed if no
        answer came, so that the bag may or may not exist."""
        if not spec.key:
            spec = msgspec.structs.replace(spec, key=secrets.token_hex(16))
        slow = SLOW_SECONDS if spec.rows is not None else 0.0
        try:
            return self._post("/bags", Submitted, body=spec, wait_seconds=slow)
        except ServerAway as error:
            if not error.asked:
                raise
            raise Unconfirmed(str(error), spec.key) from error

    def append(self, bag: BagRef, segment: Segment, key: str = "") -> Submitted:
        """Add tasks to an open bag. They are durable when this returns. As with `submit`, the
        request may be repeated with the same key."""
        order = {"key": key or secrets.token_hex(16), "segment": segment}
        slow = SLOW_SECONDS if segment.rows is not None else 0.0
        return self._post(f"/bags/{bag}/append", Submitted, body=order, wait_seconds=slow)

    def cancel(self, bag: BagRef) -> int:
        """Stop the bag. Returns how many tasks will not run, or were stopped."""
        return self._post(f"/bags/{bag}/cancel", Count).count

    def close_bag(self, bag: BagRef) -> int:
        """Close an open bag: no more tasks will follow."""
        return self._post(f"/bags/{bag}/close", Count).count

    def pause(self, bag: BagRef, reason: str = "") -> int:
        """Send no more tasks of the bag; running tasks go on. Returns how many tasks are left."""
        return self._post(f"/bags/{bag}/pause", Count, body={"reason": reason}).count

    def resume(self, bag: BagRef) -> int:
        return self._post(f"/bags/{bag}/resume", Count).count

    def retry(
        self,
        bag: BagRef,
        *,
        causes: Iterable[str] = (),
        tasks: Iterable[int] | None = None,
        memory: float = 1.0,
        time: float = 1.0,
        memory_mb: int = 0,
        limit_seconds: float = 0.0,
        done: bool = False,
        changes: InputChanges | None = None,
    ) -> int:
        """Run failed tasks again and, with `done`, tasks that are done. Returns their number. With
        `changes`, attempts from now on get other input files; upload these files first."""
        order = {
            "causes": list(causes),
            "tasks": None if tasks is None else list(tasks),
            "memory": memory,
            "time": time,
            "memory_mb": memory_mb,
            "limit_seconds": limit_seconds,
            "done": done,
            "changes": changes,
        }
        return self._post(f"/bags/{bag}/retry", Count, body=order).count

    def inputs(self, bag: BagRef) -> InputsView:
        """The bag's input files, and the paths that they came from. Raises NotFound."""
        return self._get(f"/bags/{bag}/inputs", InputsView, wait_seconds=SYNC_SECONDS)

    def purge(self, bag: BagRef, what: str) -> int:
        """Remove the `logs`, the `files` or `all` data of a bag that is over."""
        path = f"/bags/{bag}/purge"
        return self._post(path, Count, {"what": what}, wait_seconds=SLOW_SECONDS).count

    def bags(self) -> list[BagView]:
        """Newest first."""
        return self._get("/bags", list[BagView])

    def bag(self, bag: BagRef, *, wait_seconds: float = 0.0, seen: int = -1) -> BagView | None:
        """The state of a bag; None if there is none. With `wait_seconds`, the server answers when
        done + failed is not `seen` or the bag is over."""
        query: dict[str, Any] = {}
        if wait_seconds:
            query = {"wait": wait_seconds, "seen": seen}
        try:
            return self._get(f"/bags/{bag}", BagView, query, wait_seconds)
        except NotFound:
            return None

    def running(self, bag: BagRef, limit: int = 1000) -> list[RunningRow]:
        return self._get(f"/bags/{bag}/running", list[RunningRow], {"limit": limit})

    def explain(self, bag: BagRef, task: int = -1) -> Explanation:
        """Why the bag, or one of its tasks, is in its present state. Raises NotFound."""
        return self._get(f"/bags/{bag}/explain", Explanation, {"task": task})

    # -- policies --------------------------------------------------------------------------

    def policy(self, bag: BagRef) -> ShownPolicy:
        """The policy of the bag. Raises NotFound."""
        return self._get(f"/bags/{bag}/policy", ShownPolicy)

    def set_policy(self, bag: BagRef, policy: PolicySpec) -> int:
        """Change the policy of the bag. Returns 1, or 0 if the bag is over. Raises Refused, with a
        message for people, for an invalid policy; the bag keeps its old policy then."""
        sent = msgspec.json.encode(policy)
        return self.connection.ask(Count, "PUT", f"{API}/bags/{bag}/policy", None, sent).count

    def check_policy(self, policy: PolicySpec | None, bag: BagRef | None = None) -> PolicyReport:
        """The mistakes of a policy, for this bag, or for a bag that may be submitted. Without a
        policy: the mistakes of the bag's own policy."""
        path = "/policy/check" if bag is None else f"/bags/{bag}/policy/check"
        return self._post(path, PolicyReport, body=policy)

    def attributes(self) -> list[Listed]:
        """The attributes that policies can use, with examples from this server."""
        return self._get("/policy/attributes", list[Listed])

    # -- results ---------------------------------------------------------------------------

    def results(
        self, bag: BagRef, query: ResultQuery, wait_seconds: float = 0.0
    ) -> list[ResultRow]:
        """Results that count. With `wait_seconds`, the server answers as soon as there are any. A
        query by row is then answered a few times a second at most, while most of the bag's tasks
        have not ended."""
        parameters = _parameters(query)
        if wait_seconds:
            parameters["wait"] = wait_seconds
        try:
            return self._get(f"/bags/{bag}/results", list[ResultRow], parameters, wait_seconds)
        except Refused as refused:
            if refused.status != TOO_LARGE:
                raise
            return self._results_in_parts(bag, query)

    def _results_in_parts(self, bag: BagRef, query: ResultQuery) -> list[ResultRow]:
        """A page of results that is too large for one answer of the server."""
        rows: list[ResultRow] = []
        most = query.limit or PAGE_ROWS
        size = most
        while len(rows) < most:
            limit = min(size, most - len(rows))
            parameters = _parameters(replace(query, limit=limit))
            try:
                part = self._get(f"/bags/{bag}/results", list[ResultRow], parameters)
            except Refused as refused:
                if refused.status != TOO_LARGE or size == 1:
                    raise
                size = max(1, size // 4)
                continue
            rows += part
            if len(part) < limit:
                break
            query = query.behind(part)
        return rows

    def export(self, bag: BagRef, query: ResultQuery, form: str) -> Iterator[bytes]:
        """The results as a file, `csv` or `jsonl`, in parts: all rows, unless the query has a
        limit. Raises ServerAway if the connection breaks: begin again then."""
        parameters = {"format": form, **_parameters(query)}
        return self.connection.stream(f"{API}/bags/{bag}/results", parameters)

    def failures(self, bag: BagRef, limit: int = 100) -> list[FailureGroup]:
        return self._get(f"/bags/{bag}/failures", list[FailureGroup], {"limit": limit})

    def files(self, bag: BagRef, after: int = -1, limit: int = 1000) -> list[ReturnedFile]:
        """The files that tasks returned, in the order of rows."""
        query = {"after": after, "limit": limit}
        return self._get(f"/bags/{bag}/files", list[ReturnedFile], query)

    def unfinished(self, bag: BagRef, after: int = -1, limit: int = 1000) -> list[int]:
        """The next tasks without a result, in order."""
        query = {"after": after, "limit": limit}
        return self._get(f"/bags/{bag}/unfinished", list[int], query)

    def attempts(self, bag: BagRef, task: int) -> list[ResultRow]:
        """Every ended attempt of a task, oldest first."""
        return self._get(f"/bags/{bag}/tasks/{task}", list[ResultRow])

    def output(self, bag: BagRef, task: int) -> Output | None:
        try:
            return self._get(f"/bags/{bag}/tasks/{task}/output", Output)
        except NotFound:
            return None

    def live_output(
        self, bag: BagRef, task: int = -1, after: int = 0, wait_seconds: float = 0.0
    ) -> LiveOutput:
        """What running tasks printed since `after`. Does not wait if the task or bag is over."""
        query = {"task": task, "after": after, "wait": wait_seconds}
        return self._get(f"/bags/{bag}/live", LiveOutput, query, wait_seconds)

    # -- files -----------------------------------------------------------------------------

    def missing(self, digests: Iterable[str]) -> list[str]:
        """The digests whose files the server does not have, or not completely."""
        return self._post("/files/missing", list[str], body=list(digests))

    def file_state(self, digest: str) -> Stored:
        return self._get(f"/files/{digest}/state", Stored)

    def put_piece(self, digest: str, offset: int, size: int, data: bytes) -> Stored:
        """Send bytes of a file of `size` bytes, from `offset` on. The answer has the next
        offset."""
        query = {"offset": offset, "size": size}
        answer = self.connection.request("PUT", f"{API}/files/{digest}", query, data, SYNC_SECONDS)
        return msgspec.json.decode(answer, type=Stored)

    def read_file(self, digest: str) -> Iterator[bytes]:
        """The whole file, in parts, even if the server restarts or connections break meanwhile.
        Raises ServerAway if nothing came for the connection's `patience_seconds`."""
        got, pause = 0, FIRST_PAUSE_SECONDS
        came = time.monotonic()
        while True:
            try:
                for part in self.connection.stream(f"{API}/files/{digest}", start=got):
                    got, pause = got + len(part), FIRST_PAUSE_SECONDS
                    came = time.monotonic()
                    yield part
                    came = time.monotonic()  # the caller may be slow
                return
            except ServerStopped:
                raise
            except ServerAway:
                if time.monotonic() - came + pause > self.connection.patience_seconds:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    # -- tokens ----------------------------------------------------------------------------

    def create_token(
        self, name: str, *, role: str = "user", owner: str = "", seconds: float = 0.0
    ) -> Issued:
        """A new token of this owner (empty: the caller), valid for `seconds` (0: as long as the
        caller's). If the answer is lost, the token exists but nobody knows it: revoke it."""
        order = {"name": name, "role": role, "owner": owner, "seconds": seconds}
        return self._post("/tokens", Issued, body=order)

    def tokens(self) -> list[TokenView]:
        """The valid tokens."""
        return self._get("/tokens", list[TokenView])

    def revoke_token(self, token: int) -> int:
        """Returns 1, or 0 if the token was no longer valid."""
        return self._post(f"/tokens/{token}/revoke", Count).count

    # -- sites -----------------------------------------------------------------------------

    def sites(self) -> list[SiteView]:
        """The sites that the caller may use."""
        return self._get("/sites", list[SiteView])

    def site(self, name: str) -> SiteView:
        """Raises NotFound."""
        return self._get(f"/sites/{_quoted(name)}", SiteView)

    def site_jobs(self, name: str, limit: int = 100) -> list[SiteJobView]:
        """The site's jobs, newest first, also those that are over. Raises NotFound."""
        return self._get(f"/sites/{_quoted(name)}/jobs", list[SiteJobView], {"limit": str(limit)})

    def save_site(self, name: str, table: dict[str, Any]) -> int:
        """Add a site, or replace all its settings. The keys are those of [sites.NAME] in
        covey.toml. Raises Refused, with a message for people, for invalid settings."""
        path = f"{API}/sites/{_quoted(name)}"
        return self.connection.ask(Count, "PUT", path, None, msgspec.json.encode(table)).count

    def remove_site(self, name: str) -> int:
        return self.connection.ask(Count, "DELETE", f"{API}/sites/{_quoted(name)}", None, b"").count

    def set_site(self, name: str, word: Literal["pause", "resume", "drain"]) -> int:
        return self._post(f"/sites/{_quoted(name)}/{word}", Count).count

    def explain_site(self, name: str) -> SiteExplanation:
        """Why the site gets no pilots, or no more. Raises NotFound."""
        return self._get(f"/sites/{_quoted(name)}/explain", SiteExplanation)

    def site_weights(self, algorithm: str = "") -> BrokerAnswer:
        """What every site is worth to the broker now. Raises NotFound for an unknown algorithm."""
        query = {"algorithm": algorithm} if algorithm else {}
        return self._get("/broker/weights", BrokerAnswer, query)

    def give_weights(self, service: str, weights: dict[str, float], source: str = "") -> int:
        """In the name of a resource priority service. Raises NotFound, Refused."""
        path = f"{API}/broker/services/{_quoted(service)}/weights"
        body = msgspec.json.encode(WeightsTable(weights=weights, source=source))
        return self.connection.ask(Count, "PUT", path, None, body).count

    def past_weights(self) -> list[WeightsAt]:
        """What sites were worth over the last day, the oldest first."""
        return self._get("/broker/history", list[WeightsAt])

    def try_site(self, name: str) -> TrialView:
        """Start one pilot at the site. It stays until the trial is ended."""
        return self._post(f"/sites/{_quoted(name)}/test", TrialView)

    def trial(self, name: str, job: str, *, seen: int = -1, wait_seconds: float = 0.0) -> TrialView:
        """The state of a trial. With `wait_seconds`, the server answers when the trial has more
        than `seen` steps."""
        query: dict[str, Any] = {"seen": seen, "wait": wait_seconds} if wait_seconds else {}
        path = f"/sites/{_quoted(name)}/trials/{_quoted(job)}"
        return self._get(path, TrialView, query, wait_seconds)

    def end_trial(self, name: str, job: str) -> int:
        """Cancel the trial's job, or shut its pilot down. Returns 1, or 0 if it was over."""
        return self._post(f"/sites/{_quoted(name)}/trials/{_quoted(job)}/end", Count).count

    # -- the rest --------------------------------------------------------------------------

    def pilots(self, limit: int = 1000, *, everyone: bool = False) -> list[PilotView]:
        """The pilots, newest first. With `everyone`, also those that have left."""
        query = {"all": "1"} if everyone else None
        return self._get("/pilots", list[PilotView], query)[:limit]

    def dismiss(self, pilot: int) -> int:
        """Shut a pilot down when its running tasks have ended."""
        return self._post(f"/pilots/{pilot}/dismiss", Count).count

    def hosts(self) -> list[HostView]:
        """The hosts; those that were heard of last come first."""
        return self._get("/hosts", list[HostView])

    def server(self) -> ServerView:
        return self._get("/server", ServerView)

    def stop(self, *, drain: bool = False) -> int:
        """Stop the server. Returns how many pilots are shut down. If the server ends before it
        answers, that is success."""
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
        return self.connection.ask(kind, "GET", API + path, query, None, wait_seconds)

    def _post(
        self,
        path: str,
        kind: type[T],
        query: dict[str, Any] | None = None,
        body: Any = None,
        wait_seconds: float = 0.0,
    ) -> T:
        sent = b"" if body is None else msgspec.json.encode(body)
        return self.connection.ask(kind, "POST", API + path, query, sent, wait_seconds)


def _quoted(name: str) -> str:
    """The name as a part of a URL."""
    return urllib.parse.quote(name, safe="")


def _parameters(query: ResultQuery) -> dict[str, Any]:
    """The parameters of the URL."""
    parameters: dict[str, Any] = {
        "after": query.after,
        "order": "row" if query.by_row else "task",
        "failed": int(query.failed_only),
    }
    if query.limit:
        parameters["limit"] = query.limit
    if query.offset:
        parameters["offset"] = query.offset
    if query.where:
        parameters["where"] = list(query.where)
    if query.sort:
        parameters["sort"] = query.sort
    if query.brief:
        parameters["brief"] = 1
    return parameters
