"""Where a command finds the bags: a server, the one of this directory, or the record itself.

Reading needs no server. Changing something does, and starts the directory's own if none runs.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import structs

from covey.cli.base import say
from covey.client import embedded
from covey.client.client import Client
from covey.config import Config
from covey.core.errors import BadConfig, NotFound
from covey.core.findings import PolicyView
from covey.core.model import PolicySpec
from covey.pilot.dial import context_for, split
from covey.wire import (
    BagView,
    FailureGroup,
    HostView,
    Output,
    PilotView,
    ResultQuery,
    ResultRow,
    ReturnedFile,
)

PAGE = 1000
EVERYTHING = ResultQuery()


class Source(Protocol):
    """What a server and the record both answer."""

    def bags(self) -> list[BagView]: ...

    def bag(self, bag: int) -> BagView | None: ...

    def results(self, bag: int, query: ResultQuery) -> list[ResultRow]: ...

    def export(self, bag: int, query: ResultQuery, form: str) -> Iterator[bytes]: ...

    def failures(self, bag: int, limit: int = 100) -> list[FailureGroup]: ...

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[ReturnedFile]: ...

    def policy(self, bag: int) -> PolicyView | PolicySpec | None: ...

    def hosts(self) -> list[HostView]: ...

    def attempts(self, bag: int, task: int) -> list[ResultRow]: ...

    def output(self, bag: int, task: int) -> Output | None: ...

    def pilots(self, limit: int = 1000) -> list[PilotView]: ...


def reader(config: Config) -> Source:
    """Whoever can answer, without starting anything. Raises NotFound where nothing is kept."""
    client = running_client(config)
    if client is not None:
        return client
    from covey.wiring import open_reader

    try:
        source: Source = open_reader(config.directory)
    except NotFound:
        raise NotFound(no_bags(str(config.directory))) from None
    return source


def no_bags(place: str = "") -> str:
    where = f" ({place})" if place else ""
    return f"no bags here yet{where}; start with: covey run -- COMMAND"


def running_client(config: Config) -> Client | None:
    """The server that was named, or the directory's own if it runs."""
    if config.server:
        return remote_client(config)
    return embedded.attach(config.directory, say)


def client(config: Config, options: Sequence[str] = ()) -> Client:
    """A server, started if need be."""
    if config.server:
        return remote_client(config)
    return embedded.attach_or_start(config.directory, options, say)


def remote_client(config: Config) -> Client:
    try:
        split(config.server)
    except ValueError as error:
        raise BadConfig(f"server address {config.server!r}: {error}") from error
    if not config.token_file:
        raise BadConfig(
            f"server {config.server} needs a token: name its file with --token-file or "
            "COVEY_TOKEN_FILE"
        )
    path = Path(os.path.expanduser(config.token_file))
    try:
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise BadConfig(f"token_file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"token_file {path}: that is no token") from error
    if not token:
        raise BadConfig(f"token_file {path}: it is empty")
    return Client(config.server, token, authority(config.ca), tell=say)


def authority(name: str) -> str:
    """Whom to trust, as PEM."""
    path = Path(os.path.expanduser(name))
    try:
        found = path.read_text("ascii") if name else ""
        context_for(found)
    except OSError as error:
        raise BadConfig(f"ca {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadConfig(f"ca {path}: that is no certificate in PEM") from error
    return found


def find_bag(source: Source, reference: str) -> BagView:
    """Raises NotFound if there is no such bag."""
    if reference == "latest":
        return _latest(source)
    try:
        number = int(reference)
    except ValueError:
        raise NotFound(
            f"there is no bag '{reference}': bags have numbers, 'covey bags' lists them"
        ) from None
    found = source.bag(number)
    if found is None:
        raise NotFound(f"there is no bag {number}; 'covey bags' lists them")
    return found


def _latest(source: Source) -> BagView:
    bag = source.bag("latest") if isinstance(source, Client) else next(iter(source.bags()), None)
    if bag is None:
        raise NotFound(no_bags())
    return bag


def all_results(
    source: Source, bag: int, query: ResultQuery = EVERYTHING, *, limit: int | None = None
) -> Iterator[ResultRow]:
    """What the query asks for from its place on, a page at a time; its own limit is not used."""
    left = limit
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        page = source.results(bag, structs.replace(query, limit=size))
        yield from page
        if len(page) < size:
            return
        query = after_page(query, page)
        left = None if left is None else left - len(page)


def after_page(query: ResultQuery, page: Sequence[ResultRow]) -> ResultQuery:
    """The query for what comes behind these rows."""
    if query.sort:
        return structs.replace(query, offset=query.offset + len(page))
    last = page[-1]
    return structs.replace(query, after=last.row if query.by_row else last.task)
