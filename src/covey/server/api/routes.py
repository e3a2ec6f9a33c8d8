"""All calls of a server: address, permission, what it takes and gives.

Calls of people are declared in front of their handlers (`route`). Pilots' calls do not go through
routes, so they are listed here. Tests compare the list with the handlers, and answers with the
list.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from covey.pilot.protocol.messages import Answer, Enrol, Enrolled, Leave, Left, Printed, Sync
from covey.server.api.bags import BagCalls
from covey.server.api.files import FILE, FileRoutes
from covey.server.api.hosts import HostCalls
from covey.server.api.invitations import Invitations
from covey.server.api.pilots import PREFIX, SHOWN
from covey.server.api.policies import PolicyCalls
from covey.server.api.results import ResultCalls
from covey.server.api.server import ServerCalls
from covey.server.api.sites import SiteCalls
from covey.server.api.tokens import TokenCalls
from covey.server.web.route import API, Media, RouteDescription, declared

# Headers of answers.
CREDENTIAL = "X-Covey-Credential"
VERSION, PILOT_FILE = "X-Covey-Version", "X-Covey-Pilot"
HANDLERS = (
    ServerCalls,
    HostCalls,
    TokenCalls,
    Invitations,
    SiteCalls,
    BagCalls,
    PolicyCalls,
    ResultCalls,
    FileRoutes,
)


def all_calls() -> list[RouteDescription]:
    people = [description for holder in HANDLERS for _, description in declared(holder)]
    return [*_open_calls(), *people, *_pilot_calls()]


def _open_calls() -> Iterator[RouteDescription]:
    for path, summary, gives, headers, refuses in (
        ("/healthz", "whether the server can work", dict[str, str], (), ()),
        ("/metrics", "metrics for Prometheus", Media("text/plain"), (), ()),
        (
            f"{PREFIX}pilot.pyz",
            "the program of pilots",
            Media("application/zip"),
            (VERSION, PILOT_FILE),
            (404,),
        ),
    ):
        yield RouteDescription(
            method="GET",
            path=path,
            summary=summary,
            shown="nothing",
            gives=gives,
            headers=headers,
            refuses=refuses,
        )


def _pilot_calls() -> Iterator[RouteDescription]:
    yield _pilot_call(
        "enrol",
        "enrol a pilot",
        Enrol,
        Enrolled,
        refuses=(413, 429),
        headers=(VERSION, PILOT_FILE),
    )
    yield _pilot_call(
        "sync",
        "report ended tasks, and get new ones; waits until there is news",
        Sync,
        Answer,
        refuses=(409, 410, 413, 429),
    )
    yield _pilot_call("leave", "say that a pilot ends", Leave, Left)
    yield _pilot_call("printed", "send what followed tasks print", Printed, dict[str, Any])
    for _, description in declared(FileRoutes):
        if description.path == API + FILE:
            attempt = ("attempt",) if description.method == "PUT" else ()
            yield replace(
                description,
                path=PREFIX + FILE.lstrip("/"),
                needs=None,
                shown="credential",
                query=(*description.query, *attempt, "pilot"),
                refuses=(*description.refuses, 410),
            )


def _pilot_call(name: str, summary: str, takes: Any, gives: Any, **fields: Any) -> RouteDescription:
    usual = {"refuses": (410, 413), "headers": (CREDENTIAL,)}
    return RouteDescription(
        method="POST",
        path=PREFIX + name,
        summary=summary,
        shown=SHOWN[name],  # type: ignore[arg-type]
        takes=takes,
        gives=gives,
        **{**usual, **fields},
    )
