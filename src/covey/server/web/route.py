"""A route, declared once, where its handler is: address, permission, what it takes and gives.

The server's routes, their permissions and the description (`openapi`) all come from these
declarations. What a handler returns is what its route gives, unless the declaration says otherwise.
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
# What a handler gives becomes JSON, unless it is a Response.
Handler = Callable[[Request], Awaitable[Any]]
Endpoint = Callable[[Request], Awaitable[Response]]
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])


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


Guarded = Callable[[Handler, RouteDescription], Endpoint]


# -- declarations, in front of handlers --------------------------------------------------------


def route(
    method: str, path: str, summary: str, needs: Needs | None, **fields: Any
) -> Callable[[H], H]:
    def declare(handler: H) -> H:
        returned = handler.__annotations__["return"]
        fields.setdefault("gives", Done if returned is ReplyMessage else returned)
        found = RouteDescription(method=method, path=path, summary=summary, needs=needs, **fields)
        setattr(handler, _DECLARED, found)
        return handler

    return declare


def look(path: str, summary: str, needs: Needs, *query: str, **fields: Any) -> Callable[[H], H]:
    fields.setdefault("refuses", (404,) if "{" in path else ())
    return route("GET", API + path, summary, needs, query=query, **fields)


def act(path: str, summary: str, needs: Needs, **fields: Any) -> Callable[[H], H]:
    return route("POST", API + path, summary, needs, **fields)


def bag_order(name: str, summary: str, **fields: Any) -> Callable[[H], H]:
    """Something to be done with a bag, by its owner."""
    refuses = (404, 409, 413) if "takes" in fields else (404, 409)
    return act(f"{BAG}/{name}", summary, ACT_ON_OWN, refuses=refuses, **fields)


# -- what was declared -------------------------------------------------------------------------


def declared(holder: type) -> Iterator[tuple[str, RouteDescription]]:
    """The handlers of a class, by name, in their order."""
    for name, value in vars(holder).items():
        if (found := getattr(value, _DECLARED, None)) is not None:
            yield name, found


def routes_of(holder: object, guarded: Guarded) -> list[BaseRoute]:
    """`guarded` makes an endpoint, for those who may, of a handler that needs something."""
    found: list[BaseRoute] = []
    for name, description in declared(type(holder)):
        endpoint = getattr(holder, name)
        if description.needs is not None:
            endpoint = guarded(endpoint, description)
        found.append(Route(description.path, endpoint, methods=[description.method]))
    return found
