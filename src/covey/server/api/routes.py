"""Everything that can be asked of a server: where, with what, by whom, and what comes back.

What people ask is declared where it is handled (`route`). Pilots' calls do not go through routes,
so they are listed here; tests hold the list to what is there, and every answer to what it says.
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

# What an answer may say beside its body.
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
    people = [found for holder in HANDLERS for _, found in declared(holder)]
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
    yield _said(
        "enrol",
        "enrol a pilot",
        Enrol,
        Enrolled,
        refuses=(413, 429),
        headers=(VERSION, PILOT_FILE),
    )
    yield _said(
        "sync",
        "report ended tasks, and get new ones; waits until there is news",
        Sync,
        Answer,
        refuses=(409, 410, 413, 429),
    )
    yield _said("leave", "say that a pilot ends", Leave, Left)
    yield _said("printed", "send what followed tasks print", Printed, dict[str, Any])
    for _, found in declared(FileRoutes):
        if found.path == API + FILE:
            attempt = ("attempt",) if found.method == "PUT" else ()
            yield replace(
                found,
                path=PREFIX + FILE.lstrip("/"),
                needs=None,
                shown="credential",
                query=(*found.query, *attempt, "pilot"),
                refuses=(*found.refuses, 410),
            )


def _said(name: str, summary: str, takes: Any, gives: Any, **fields: Any) -> RouteDescription:
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
