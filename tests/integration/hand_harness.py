"""The invitations on a server of their own, with TLS of our own authority or without."""

import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from covey.core.record.model import Role
from covey.server.api.invitations import Invitations, ServerAddress
from covey.server.web.auth import Caller, Needs
from covey.server.web.certificate_authority import Authority
from covey.server.web.problems import HttpProblem
from covey.server.web.route import RouteDescription, routes_of

Handler = Callable[[Request], Awaitable[Any]]


class Inviting:
    """`told` is where pilots are sent; `clock.at` is the time here."""

    def __init__(self, folder: Path, told: ServerAddress, pilot_file: Path, secure: bool) -> None:
        self.caller = Caller(Role.ADMIN, "", "the server's own", trusted=True)
        self.needs: list[Needs | None] = []
        self.at = time.time()
        access: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: self.at))
        self.invitations = Invitations(access, "master", lambda: told, pilot_file)
        self.ca = ""
        options: dict[str, Any] = {}
        if secure:
            authority = Authority(folder / "tls")
            authority.issue(["localhost", "127.0.0.1"])
            self.ca = authority.trusted
            options["ssl_certfile"] = str(folder / "tls" / "server.pem")
            options["ssl_keyfile"] = str(folder / "tls" / "server.key")
        app = Starlette(
            routes=routes_of(self.invitations, self._guarded),
            exception_handlers={HttpProblem: _problem},
        )
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        scheme = "https" if secure else "http"
        self.address = f"{scheme}://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(app, log_config=None, lifespan="off", **options)
        self.http = uvicorn.Server(config)

    def _guarded(
        self, handler: Handler, description: RouteDescription
    ) -> Callable[[Request], Awaitable[Response]]:
        self.needs.append(description.needs)

        async def endpoint(request: Request) -> Response:
            request.state.caller = self.caller
            return Response(msgspec.json.encode(await handler(request)), description.status)

        return endpoint


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)
    return Response(error.body(), error.status)


@contextlib.contextmanager
def inviting(
    folder: Path, told: ServerAddress, pilot_file: Path, secure: bool
) -> Iterator[Inviting]:
    found = Inviting(folder, told, pilot_file, secure)
    thread = threading.Thread(target=found.http.run, kwargs={"sockets": [found.socket]})
    thread.start()
    try:
        while not found.http.started:
            time.sleep(0.01)
        yield found
    finally:
        found.http.should_exit = True
        thread.join()
