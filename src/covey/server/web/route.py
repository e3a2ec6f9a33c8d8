"""Declarations of routes, in front of their handlers: address, permission, what a route takes and
gives.

The server's routes, their permissions and the description (`openapi`) all come from these
declarations. A route gives what its handler returns, unless the declaration says otherwise.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from covey.core.record.actions import Done, ReplyMessage
from covey.server.web.auth import ACT_ON_OWN, Needs

API, BAG = "/api/v1", "/bags/{bag}"
_DECLARED = "route_description"

Shown = Literal["nothing", "token", "secret", "credential"]
# What a handler returns becomes JSON, unless it is a Response.
Handler = Callable[[Request], Awaitable[Any]]
Endpoint = Callable[[Request], Awaitable[Response]]
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])


class Media(Struct, frozen=True):
    """A body that is not JSON."""

    kind: str


BYTES = Media("application/octet-stream")


class RouteDescription(Struct, frozen=True, kw_only=True):
    """One address and method. `takes` and `gives` are types or Media; None: nothing."""

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
    partly: bool = False  # the header Range may ask for a part
    refuses: tuple[int, ...] = ()  # its own error statuses, beside those of every route
    refuses_with: Media | None = None  # the body of a 410, if it is not a problem document


Guarded = Callable[[Handler, RouteDescription], Endpoint]


# -- declarations, in front of handlers --------------------------------------------------------


def route(
    method: str, path: str, summary: str, needs: Needs | None, **fields: Any
) -> Callable[[H], H]:
    def declare(handler: H) -> H:
        returned = handler.__annotations__["return"]
        fields.setdefault("gives", Done if returned is ReplyMessage else returned)
        described = RouteDescription(
            method=method, path=path, summary=summary, needs=needs, **fields
        )
        setattr(handler, _DECLARED, described)
        return handler

    return declare


def look(path: str, summary: str, needs: Needs, *query: str, **fields: Any) -> Callable[[H], H]:
    fields.setdefault("refuses", (404,) if "{" in path else ())
    return route("GET", API + path, summary, needs, query=query, **fields)


def act(path: str, summary: str, needs: Needs, **fields: Any) -> Callable[[H], H]:
    return route("POST", API + path, summary, needs, **fields)


def bag_order(name: str, summary: str, **fields: Any) -> Callable[[H], H]:
    """A change of a bag, by its owner."""
    refuses = (404, 409, 413) if "takes" in fields else (404, 409)
    return act(f"{BAG}/{name}", summary, ACT_ON_OWN, refuses=refuses, **fields)


# -- what was declared -------------------------------------------------------------------------


def declared(holder: type) -> Iterator[tuple[str, RouteDescription]]:
    """The names of a class's handlers and their routes, in their order."""
    for name, value in vars(holder).items():
        if (description := getattr(value, _DECLARED, None)) is not None:
            yield name, description


def routes_of(holder: object, guarded: Guarded) -> list[BaseRoute]:
    """`guarded` makes an endpoint that checks permissions, for each handler that needs them."""
    routes: list[BaseRoute] = []
    for name, description in declared(type(holder)):
        endpoint = getattr(holder, name)
        if description.needs is not None:
            endpoint = guarded(endpoint, description)
        routes.append(Route(description.path, endpoint, methods=[description.method]))
    return routes
