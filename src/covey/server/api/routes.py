"""Everything that can be asked of a server: where, with what, by whom, and what comes back.

A table that is only described from (`openapi`): tests hold it to the routes that are really there
and to what they need, and every answer to what it says.
"""

from typing import Any, Literal

from msgspec import Struct

from covey.config_sites import SiteTable
from covey.core.explain.answers import Listed, PolicyReport, ShownPolicy
from covey.core.record.actions import Done, Submitted
from covey.core.record.model import BagSpec, PolicySpec
from covey.pilot.protocol.messages import Answer, Enrol, Enrolled, Leave, Left, Printed, Sync
from covey.server.api.bags import Append, Pause, Retry
from covey.server.api.invitations import NewInvitation
from covey.server.api.tokens import NewToken
from covey.server.web.auth import ACT, ACT_ON_OWN, MANAGE, SEE, SEE_OWN, Needs
from covey.wire import (
    BagView,
    Explanation,
    FailureGroup,
    HostView,
    InputsView,
    Invitation,
    Issued,
    LiveOutput,
    Output,
    PilotView,
    ResultRow,
    ReturnedFile,
    RunningRow,
    ServerView,
    SiteExplanation,
    SiteView,
    Stored,
    TokenView,
    TrialView,
)

API, BAG, FILE = "/api/v1", "/api/v1/bags/{bag}", "/files/{digest}"
PILOT = "/pilot/v1"
# What an answer may say beside its body.
CREDENTIAL = "X-Covey-Credential"
VERSION, PILOT_FILE = "X-Covey-Version", "X-Covey-Pilot"

Shown = Literal["nothing", "token", "secret", "credential"]


class Media(Struct, frozen=True):
    """A body that is not JSON."""

    kind: str


BYTES = Media("application/octet-stream")


class RouteDescription(Struct, frozen=True, kw_only=True):
    """One thing that can be asked. `takes` and `gives` are types or Media; None: nothing."""

    method: str
    path: str
    summary: str
    needs: Needs | None = None  # of people
    shown: Shown = "token"
    query: tuple[str, ...] = ()
    takes: Any = None
    takes_nothing_too: bool = False
    gives: Any = None
    also_gives: tuple[Media, ...] = ()
    status: int = 200
    headers: tuple[str, ...] = ()
    partly: bool = False  # a part of it may be asked for (Range)
    refuses: tuple[int, ...] = ()  # beside what everything may be refused for
    refuses_with: Media | None = None  # what stands in a 410, if it is no problem document


def _look(
    path: str, summary: str, needs: Needs, gives: Any, *query: str, **fields: Any
) -> RouteDescription:
    fields.setdefault("refuses", (404,) if "{" in path else ())
    return RouteDescription(
        method="GET", path=path, summary=summary, needs=needs, gives=gives, query=query, **fields
    )


def _do(path: str, summary: str, needs: Needs, gives: Any, **fields: Any) -> RouteDescription:
    return RouteDescription(
        method="POST", path=path, summary=summary, needs=needs, gives=gives, **fields
    )


def _order(name: str, summary: str, **fields: Any) -> RouteDescription:
    refuses = (404, 409, 413) if "takes" in fields else (404, 409)
    return _do(f"{BAG}/{name}", summary, ACT_ON_OWN, Done, refuses=refuses, **fields)


def _open(path: str, summary: str, gives: Any, **fields: Any) -> RouteDescription:
    return RouteDescription(
        method="GET", path=path, summary=summary, shown="nothing", gives=gives, **fields
    )


def all_calls() -> list[RouteDescription]:
    return [
        *_open_calls(),
        *_server_calls(),
        *_site_calls(),
        *_bag_calls(),
        *_policy_calls(),
        *_result_calls(),
        *_file_calls(),
        *_pilot_calls(),
    ]


def _open_calls() -> list[RouteDescription]:
    python, zipped = Media("text/x-python"), Media("application/zip")
    headers = (VERSION, PILOT_FILE)
    return [
        _open("/healthz", "whether the server can work", dict[str, str]),
        _open("/metrics", "metrics for Prometheus", Media("text/plain")),
        _open(
            "/join/{invitation}",
            "a program that starts a pilot; can be fetched once",
            python,
            refuses=(410,),
            refuses_with=python,
        ),
        _open(
            f"{PILOT}/pilot.pyz", "the program of pilots", zipped, headers=headers, refuses=(404,)
        ),
    ]


def _server_calls() -> list[RouteDescription]:
    tokens = f"{API}/tokens"
    return [
        _look(f"{API}/openapi.json", "this description of the API", SEE, dict[str, Any]),
        _look(f"{API}/server", "facts about the server", SEE, ServerView),
        _do(f"{API}/stop", "shut the server down", MANAGE, dict[str, int], query=("drain",)),
        _look(f"{API}/pilots", "all pilots", SEE, list[PilotView]),
        _do(f"{API}/pilots/{{pilot}}/dismiss", "shut a pilot down", ACT, Done, refuses=(404,)),
        _look(f"{API}/hosts", "the hosts that pilots ran on", SEE, list[HostView]),
        _look(tokens, "the valid tokens of the caller's owner", ACT, list[TokenView]),
        _do(
            tokens,
            "a new token, with no more rights than the caller's",
            ACT,
            Issued,
            takes=NewToken,
            status=201,
            refuses=(413, 429),
        ),
        _do(f"{tokens}/{{token}}/revoke", "revoke a token", ACT, Done, refuses=(404,)),
        _do(
            f"{API}/invitations",
            "invite a pilot that somebody starts by hand",
            ACT,
            Invitation,
            takes=NewInvitation,
            takes_nothing_too=True,
            status=201,
            refuses=(413, 429),
        ),
    ]


def _site_calls() -> list[RouteDescription]:
    site, trial = f"{API}/sites/{{site}}", f"{API}/sites/{{site}}/trials/{{job}}"

    def change(method: str, path: str, summary: str, **fields: Any) -> RouteDescription:
        fields.setdefault("gives", Done)
        fields.setdefault("refuses", (404,))
        return RouteDescription(method=method, path=path, summary=summary, needs=MANAGE, **fields)

    return [
        _look(f"{API}/sites", "the sites that the caller may see", SEE, list[SiteView]),
        _look(site, "a site", SEE, SiteView),
        change("PUT", site, "add a site, or change an added one", takes=SiteTable, refuses=(413,)),
        change("DELETE", site, "remove an added site as soon as its last job has ended"),
        change("POST", f"{site}/pause", "pause a site: start no new pilots there"),
        change("POST", f"{site}/resume", "resume a site, and forget its earlier failures"),
        change(
            "POST", f"{site}/drain", "drain a site: cancel its waiting pilots, let the others end"
        ),
        change(
            "POST",
            f"{site}/test",
            "test a site: start one pilot there",
            gives=TrialView,
            status=201,
        ),
        _look(trial, "the progress of that test", MANAGE, TrialView, "seen_steps", "wait"),
        change("POST", f"{trial}/end", "end that test", refuses=()),
        _look(f"{site}/explain", "why a site gets no pilots, or no more", SEE, SiteExplanation),
    ]


def _bag_calls() -> list[RouteDescription]:
    return [
        _do(
            f"{API}/bags",
            "submit a bag; send its files first",
            ACT,
            Submitted,
            takes=BagSpec,
            status=201,
            refuses=(409, 413),
        ),
        _look(f"{API}/bags", "all bags, newest first", SEE, list[BagView]),
        _look(BAG, "a bag", SEE, BagView, "seen", "wait"),
        _order("append", "add tasks to an open bag", takes=Append),
        _order("close", "close an open bag: no more tasks will be added"),
        _order("cancel", "cancel a bag, and keep the results that it has"),
        _order(
            "pause", "pause a bag: start no more of its tasks", takes=Pause, takes_nothing_too=True
        ),
        _order("resume", "resume a paused bag"),
        _order(
            "retry",
            "run failed tasks again, on request with other input files; send these first",
            takes=Retry,
            takes_nothing_too=True,
        ),
        _order("purge", "remove the logs or files of a bag, or all of it", query=("what",)),
        _look(
            f"{BAG}/inputs",
            "the input files of a bag, and where they came from",
            SEE_OWN,
            InputsView,
        ),
        _look(
            f"{BAG}/running",
            "tasks that are running or were sent ahead",
            SEE_OWN,
            list[RunningRow],
            "limit",
        ),
        _look(
            f"{BAG}/unfinished",
            "the next tasks without a result",
            SEE_OWN,
            list[int],
            "after",
            "limit",
        ),
    ]


def _policy_calls() -> list[RouteDescription]:
    policy = f"{BAG}/policy"
    return [
        _look(f"{API}/policy/attributes", "what policies can look at", SEE, list[Listed]),
        _look(
            f"{API}/policy/presets",
            "the presets: policies that have a name",
            SEE,
            list[ShownPolicy],
        ),
        _do(
            f"{API}/policy/check",
            "check a policy",
            ACT,
            PolicyReport,
            takes=PolicySpec,
            refuses=(413,),
        ),
        _look(policy, "the policy of a bag", SEE_OWN, ShownPolicy),
        RouteDescription(
            method="PUT",
            path=policy,
            summary="change the policy of a bag",
            needs=ACT_ON_OWN,
            takes=PolicySpec,
            gives=Done,
            refuses=(404, 409, 413),
        ),
        _do(
            f"{policy}/check",
            "check a policy for this bag; without a body, the bag's own policy",
            ACT_ON_OWN,
            PolicyReport,
            takes=PolicySpec,
            takes_nothing_too=True,
            refuses=(404, 413),
        ),
        _look(
            f"{BAG}/explain",
            "why a bag, or one of its tasks, is not running",
            SEE_OWN,
            Explanation,
            "of",
        ),
    ]


def _result_calls() -> list[RouteDescription]:
    task = f"{BAG}/tasks/{{task}}"
    return [
        _look(
            f"{BAG}/results",
            "a table of results",
            SEE_OWN,
            list[ResultRow],
            *(
                "after",
                "offset",
                "limit",
                "order",
                "failed",
                "where",
                "sort",
                "brief",
                "format",
                "wait",
            ),
            also_gives=(Media("text/csv"), Media("application/jsonl")),
            refuses=(404, 413),
        ),
        _look(f"{BAG}/failures", "causes of failure", SEE_OWN, list[FailureGroup], "limit"),
        _look(
            f"{BAG}/files",
            "files that tasks returned",
            SEE_OWN,
            list[ReturnedFile],
            *("after", "limit"),
        ),
        _look(
            f"{BAG}/live",
            "what running tasks print",
            SEE_OWN,
            LiveOutput,
            *("of", "after", "wait"),
        ),
        _look(task, "every attempt of a task", SEE_OWN, list[ResultRow]),
        _look(f"{task}/output", "what a task printed", SEE_OWN, Output),
    ]


def _file_calls() -> list[RouteDescription]:
    return [
        _do(
            f"{API}/files/missing",
            "which of these files the caller still has to send",
            ACT,
            list[str],
            takes=list[str],
            refuses=(413, 422),
        ),
        _look(
            f"{API}{FILE}/state",
            "how much of a file the caller has sent",
            ACT,
            Stored,
            refuses=(422,),
        ),
        *_of_a_file(API, ACT, SEE, "token", ()),
    ]


def _of_a_file(
    where: str, write: Needs | None, read: Needs | None, shown: Shown, query: tuple[str, ...]
) -> list[RouteDescription]:
    gone, for_whom = ((), ()) if shown == "token" else ((410,), ("attempt",))
    return [
        RouteDescription(
            method="PUT",
            path=where + FILE,
            summary="send a piece of a file",
            needs=write,
            shown=shown,
            query=("offset", "size", *for_whom, *query),
            takes=BYTES,
            takes_nothing_too=True,
            gives=Stored,
            refuses=(413, 422, *gone),
        ),
        RouteDescription(
            method="GET",
            path=where + FILE,
            summary="a file; with the header Range, a part of it",
            needs=read,
            shown=shown,
            query=query,
            gives=BYTES,
            partly=True,
            refuses=(404, 416, 422, *gone),
        ),
    ]


def _said(name: str, summary: str, takes: Any, gives: Any, **fields: Any) -> RouteDescription:
    usual = {"shown": "credential", "refuses": (409, 410, 413, 429), "headers": (CREDENTIAL,)}
    return RouteDescription(
        method="POST",
        path=f"{PILOT}/{name}",
        summary=summary,
        takes=takes,
        gives=gives,
        **{**usual, **fields},
    )


def _pilot_calls() -> list[RouteDescription]:
    return [
        _said(
            "enrol",
            "enrol a pilot",
            Enrol,
            Enrolled,
            shown="secret",
            refuses=(413, 429),
            headers=(VERSION, PILOT_FILE),
        ),
        _said(
            "sync", "report ended tasks, and get new ones; waits until there is news", Sync, Answer
        ),
        _said("leave", "say that a pilot ends", Leave, Left, refuses=(410, 413)),
        _said(
            "printed", "send what followed tasks print", Printed, dict[str, Any], refuses=(410, 413)
        ),
        *_of_a_file(PILOT, None, None, "credential", ("pilot",)),
    ]
