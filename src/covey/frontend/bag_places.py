"""Where a command finds the bags: at a remote server, at this directory's own server, or in the
record.

Reading needs no server. A change needs one: the directory's own server is started if none runs.
"""

import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import structs

from covey.client import embedded
from covey.client.authority import read_authority
from covey.client.client import Client
from covey.config import Config
from covey.core.errors import BadConfig, NotFound
from covey.core.explain.answers import ShownPolicy
from covey.core.record.model import PolicySpec
from covey.core.values.suggestions import did_you_mean
from covey.frontend.terminal import say
from covey.pilot.protocol.connection import split
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
FEW = 5
EVERYTHING = ResultQuery()


class BagSource(Protocol):
    """The questions that both a server and the record answer."""

    def bags(self) -> list[BagView]: ...

    def bag(self, bag: int) -> BagView | None: ...

    def results(self, bag: int, query: ResultQuery) -> list[ResultRow]: ...

    def export(self, bag: int, query: ResultQuery, form: str) -> Iterator[bytes]: ...

    def failures(self, bag: int, limit: int = 100) -> list[FailureGroup]: ...

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[ReturnedFile]: ...

    def policy(self, bag: int) -> ShownPolicy | PolicySpec | None: ...

    def hosts(self) -> list[HostView]: ...

    def unfinished(self, bag: int, after: int = -1, limit: int = 1000) -> list[int]: ...

    def attempts(self, bag: int, task: int) -> list[ResultRow]: ...

    def output(self, bag: int, task: int) -> Output | None: ...

    def pilots(self, limit: int = 1000) -> list[PilotView]: ...


def reader(config: Config) -> BagSource:
    """The running server, else the record. Starts nothing. Raises NotFound if there is no
    record."""
    client = running_client(config)
    if client is not None:
        return client
    from covey.wiring import open_reader

    try:
        source: BagSource = open_reader(config.directory)
    except NotFound:
        raise NotFound(no_bags(str(config.directory))) from None
    return source


def no_bags(place: str = "") -> str:
    where = f" ({place})" if place else ""
    return f"no bags here yet{where}; start with: covey run -- COMMAND"


def running_client(config: Config) -> Client | None:
    """The remote server of the settings, or the directory's own server if it runs."""
    if config.server:
        return remote_client(config)
    return embedded.attach(config.directory, say)


def client(config: Config, options: Sequence[str] = ()) -> Client:
    """The remote server of the settings, or the directory's own server. Starts it if necessary."""
    if config.server:
        return remote_client(config)
    return embedded.attach_or_start(config.directory, options, say)


def remote_client(config: Config) -> Client:
    try:
        split(config.server)
    except ValueError as error:
        raise BadConfig(f"server address {config.server!r}: {error}") from error
    check_stranger(config)
    if not config.token_file:
        raise BadConfig(
            f"server {config.server} needs a token: name its file with --token-file or "
            "COVEY_TOKEN_FILE"
        )
    path = Path(os.path.expanduser(config.token_file))
    try:
        _check_private(path)
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise BadConfig(f"token_file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"token_file {path} does not contain a token") from error
    if not token:
        raise BadConfig(f"token_file {path} is empty")
    return Client(config.server, token, read_authority("ca", config.ca), tell=say, known=False)


def _check_private(path: Path) -> None:
    """Raises BadConfig if other users may read the file: the token would let them act as its owner.
    The mode of a pipe, as in `<(…)`, does not matter."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) and mode & 0o077:
        raise BadConfig(
            f"token_file {path}: other users may read it (mode {mode & 0o777:04o}). "
            f"Make it private: chmod 600 {shlex.quote(str(path))}"
        )


def check_stranger(config: Config) -> None:
    """Raises BadConfig if the settings name a server that must not get our token. Call this before
    anything is sent."""
    if config.stranger:
        raise BadConfig(config.stranger)


def find_bag(source: BagSource, reference: str) -> BagView:
    """A bag by its number, its name or a label (`project=x`, or the value alone); `latest` is the
    newest one. Raises NotFound if there is no such bag, or more than one."""
    if reference == "latest":
        return _latest(source)
    try:
        number = int(reference)
    except ValueError:
        number = _called(source.bags(), reference).id
    bag = source.bag(number)  # has more fields than the bags of a list
    if bag is None:
        raise NotFound(f"there is no bag {number}; 'covey bags' lists them")
    return bag


def find_bags(source: BagSource, references: Sequence[str]) -> list[BagView]:
    """Each bag once; the latest bag if none is named. Raises NotFound."""
    bags = [find_bag(source, reference) for reference in references or ("latest",)]
    return list({bag.id: bag for bag in bags}.values())


def _called(bags: Sequence[BagView], reference: str) -> BagView:
    """The bag with this name; if there is none, the bag with this label. Raises NotFound."""
    matching = [bag for bag in bags if bag.name == reference]
    if not matching:
        matching = [bag for bag in bags if has_label(bag, reference)]
    if not matching:
        named = [bag.name for bag in bags if bag.name]
        hint = did_you_mean(reference, named, "; 'covey bags' lists them")
        raise NotFound(f"there is no bag '{reference}' (by number, name or label){hint}")
    if len(matching) > 1:
        numbers = [str(bag.id) for bag in matching]
        more = f" and {len(numbers) - FEW} more" if len(numbers) > FEW else ""
        raise NotFound(
            f"'{reference}' could be bag {', '.join(numbers[:FEW])}{more}: use the number of one "
            f"(the newest is {numbers[0]})"
        )
    return matching[0]


def has_label(bag: BagView, text: str) -> bool:
    """Whether the bag has the label `name=value`, or a label with this name or this value."""
    name, equals, value = text.partition("=")
    if equals:
        return bag.labels.get(name) == value
    return text in bag.labels or text in bag.labels.values()


def _latest(source: BagSource) -> BagView:
    bag = source.bag("latest") if isinstance(source, Client) else next(iter(source.bags()), None)
    if bag is None:
        raise NotFound(no_bags())
    return bag


def all_results(
    source: BagSource, bag: int, query: ResultQuery = EVERYTHING, *, limit: int | None = None
) -> Iterator[ResultRow]:
    """All results of the query, read page by page. `limit` replaces the query's own limit."""
    left = limit
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        page = source.results(bag, structs.replace(query, limit=size))
        yield from page
        if len(page) < size:
            return
        query = query.behind(page)
        left = None if left is None else left - len(page)
