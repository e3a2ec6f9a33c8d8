"""A connection to the bags of a server, or of this directory.

The settings are the same as for the command line. Reading needs no server. Changing something, and
waiting, need one: the directory's own server is started if none runs, and started again if it dies.
Several threads may use one connection: each thread has its own client.
"""

import os
import threading
from collections.abc import Iterable
from functools import cached_property
from inspect import Parameter
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from covey.bagfile import Gathered, gather, read_draft, select
from covey.client import embedded
from covey.client.authority import read_authority
from covey.client.client import Client, Submitted, submission_key
from covey.client.http import Endpoint
from covey.config import Config, load
from covey.core.errors import BadConfig, NotFound, ServerAway
from covey.frontend import bag_places, submitting
from covey.frontend.terminal import say
from covey.pilot.protocol.connection import context_for
from covey.python.bag import Bag
from covey.python.keywords import (
    SUBMIT_SIGNATURE,
    Name,
    SubmitKeywords,
    Words,
    read_keywords,
    unknown_keyword,
)
from covey.python.listing import Listing
from covey.wire import HostView, PilotView, ServerView

if TYPE_CHECKING:
    from covey.python.aio import AsyncConnection

BEGIN = "-----BEGIN"
PATIENCE_SECONDS = 30.0


def connect(
    *,
    dir: Name | None = None,
    server: str | None = None,
    token: str | None = None,
    token_file: Name | None = None,
    ca: str | os.PathLike[str] | None = None,
    slots: int | None = None,
    patience_seconds: float | None = None,
) -> "Connection":
    """A connection to your bags. A setting comes from the arguments, else from COVEY_… variables,
    `covey.toml`, or the user's own settings. By default, it uses this directory's embedded server.

    `dir` is where an embedded server keeps its record; it is started when it is first needed,
    with this many `slots`. `server` is the address of another server. It needs a `token` (or a
    `token_file`). `ca` (a PEM file, or its text) is the certificate authority that must have signed
    its certificate. covey waits up to `patience_seconds` for a server that does not answer: by
    default 30 seconds, but only 2 for the first answer.

    Raises BadConfig for an invalid setting. With `server`, it connects at once and may raise
    ServerAway or Refused.
    """
    if dir is not None and server:
        raise BadConfig("connect(): dir is for the server of a directory; leave out dir or server")
    if dir is not None:
        server = ""  # ignore a server in the settings
    flags: dict[str, object] = {
        "dir": None if dir is None else os.fspath(dir),
        "server": server,
        "token_file": None if token_file is None else os.fspath(token_file),
        "local.slots": slots,
    }
    ca_given = "" if ca is None else os.fspath(ca)
    is_text = ca_given.lstrip().startswith(BEGIN)
    if ca_given and not is_text:
        flags["ca"] = ca_given
    elif is_text:
        flags["ca"] = ""  # ignore a file in the settings
    settled = load(flags, has_token=token is not None)
    config = settled.config
    if settled.above:
        say(f"using {settled.above} from a parent directory")
    if config.server:
        connection = Connection(
            config, _endpoint(config, token, ca_given if is_text else ""), patience_seconds
        )
        connection.server()
        connection._answered = True
        return connection
    if token is not None or token_file is not None or ca is not None:
        raise BadConfig("token and ca are for a server: name it with connect(server='https://…')")
    return Connection(config, None, patience_seconds)


def _endpoint(config: Config, token: str | None, ca: str) -> Endpoint:
    if token is None and not config.token_file:
        raise BadConfig(
            f"server {config.server} needs a token: connect(token='…'), or name its file with "
            "token_file or COVEY_TOKEN_FILE"
        )
    bag_places.check_stranger(config)
    try:
        context_for(ca)
    except ValueError as error:
        raise BadConfig("ca is not a PEM certificate") from error
    if token is None:
        endpoint = bag_places.remote_client(config).connection.endpoint
        return endpoint._replace(ca=ca) if ca else endpoint
    return Endpoint(config.server, token.strip(), ca or read_authority("ca", config.ca))


def submit(command: Words | None = None, **keywords: Unpack[SubmitKeywords]) -> Bag:
    """Submit a bag as `connect().submit(…)` does; see Connection.submit."""
    return connect().submit(command, **keywords)


class Connection:
    """Made by `connect`. Any call may raise ServerAway or Refused."""

    def __init__(
        self, config: Config, endpoint: Endpoint | None, patience_seconds: float | None
    ) -> None:
        self.config = config
        self.patience_seconds = PATIENCE_SECONDS if patience_seconds is None else patience_seconds
        self._answered = (
            patience_seconds is not None
        )  # if False, wait only 2 s for the first answer
        self._endpoint = endpoint  # None: the directory's own server
        self._mine = threading.local()

    def __repr__(self) -> str:
        return f"<covey.Connection to {self.place}>"

    @property
    def place(self) -> str:
        """The address of the server, or the directory of an embedded server."""
        return self.config.server or str(self.config.directory)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the server. Bags go on. The connection may be used again."""
        client: Client | None = getattr(self._mine, "client", None)
        self._mine.client = None
        if client is not None:
            client.close()

    @cached_property
    def aio(self) -> "AsyncConnection":
        """The same methods for asyncio: `bag = await connection.aio.submit(…)`."""
        from covey.python.aio import AsyncConnection

        return AsyncConnection(self)

    # -- bags ------------------------------------------------------------------------------
    def submit(self, command: Words | None = None, **keywords: Unpack[SubmitKeywords]) -> Bag:
        """Submit a bag, and return at once: it is durable then, and runs.

        The keywords are the keys of a bag file and mean the same (docs/bagfile.md). `file` names a
        bag file; keywords override its keys. `parameters` are combined, or side by side with `zip`.
        A value is text as in a bag file (`"1..100"`), a list, a `range` or an array. Text in a list
        is taken as it is. `rows` is a file, a data frame or a list of dictionaries.
        `resources` are the same for all tasks, or come from a parameter of each task:
        `{"cores": 2, "memory": "{mem} GB"}`.
        `policy` is the name of a preset (`"fast-tail"`), or a dictionary with the keys of
        `[policy]`: `{"rank": "Host.Cpu_MHz", "deadline": "30m"}` (docs/policies.md).

            bag = covey.submit("python3 fit.py {seed} {alpha}", inputs="fit.py",
                               parameters={"seed": range(100), "alpha": [0.1, 0.5]})

        To try a few tasks, `first=3` submits only the first three. `where` submits only the tasks
        whose parameters meet a comparison such as `"alpha < 0.3"`, or a list of comparisons, as in
        `bag.results(where=…)`. Their numbers begin at 0, as in any bag.

        A submission with the `key` of an earlier one does not make a second bag. Raises InvalidBag
        with all mistakes. Raises Unconfirmed, which has the key, if the server did not answer, so
        that the bag may or may not exist.
        """
        for name in keywords.keys() - SubmitKeywords.__annotations__.keys():
            raise TypeError(unknown_keyword(name))
        file, key = keywords.pop("file", None), keywords.pop("key", None)
        first, where = keywords.pop("first", None), keywords.pop("where", ())
        sheet = read_keywords({"command": command, **keywords}, file)
        draft = read_draft(sheet, os.environ, say, self.config.run.retries)
        draft = select(draft, first, (where,) if isinstance(where, str) else where)
        if draft.taken is not None:
            say(f"submitting {draft.taken.words}")
        return self._new_bag(self._send(gather(draft, say), key).bag)

    def _send(self, gathered: Gathered, key: str | None) -> Submitted:
        """Submit the bag. If the directory's own server ends meanwhile, submit again to a new one:
        both requests have the same key, so there is only one bag."""
        key = submission_key(key)
        try:
            return submitting.submit(self.client(), gathered, key, quiet=True)
        except ServerAway:
            if self._is_there():
                raise
        return submitting.submit(self.client(), gathered, key, quiet=True)

    def bag(self, reference: int | str = "latest") -> Bag:
        """A bag by its number, its name or a label; the latest one if none is named. Raises
        NotFound if there is none, or more than one."""
        return Bag(self, bag_places.find_bag(self.reader(), str(reference)))

    def _new_bag(self, number: int) -> Bag:
        view = self.client().bag(number)
        if view is None:
            raise NotFound(f"bag {number} is gone")
        return Bag(self, view, new=True)

    def bags(self) -> Listing[Bag]:
        """All bags, newest first."""
        try:
            views = self.reader().bags()
        except NotFound:
            views = []
        return Listing([Bag(self, view) for view in views], _BAGS)

    # -- pilots, hosts, the server -----------------------------------------------------------

    def pilots(self, *, everyone: bool = False) -> Listing[PilotView]:
        """The connected pilots, newest first. With `everyone`, also those that have left."""
        try:
            source = self.reader()
        except NotFound:
            return Listing([], _PILOTS)
        if isinstance(source, Client):
            views = source.pilots(everyone=everyone)
        else:
            views = source.pilots() if everyone else []
        return Listing(views, _PILOTS)

    def hosts(self) -> Listing[HostView]:
        """The machines that ran tasks. The host that was seen last comes first."""
        try:
            return Listing(self.reader().hosts(), _HOSTS)
        except NotFound:
            return Listing([], _HOSTS)

    def server(self) -> ServerView:
        """What the server reports about itself. An embedded server is started if necessary."""
        return self.client().server()

    # -- clients -----------------------------------------------------------------------------

    def client(self) -> Client:
        """The calling thread's client. The server is started if necessary."""
        mine: Client | None = getattr(self._mine, "client", None)
        if mine is not None and self._mine.process == os.getpid() and self._is_there():
            return mine
        if self._endpoint is not None:
            client = Client(*self._endpoint, tell=say, known=self._answered)
        else:
            slots = self.config.local.slots
            options = ("--slots", str(slots)) if slots else ()
            client = embedded.attach_or_start(self.config.directory, options, say)
        client.connection.patience_seconds = self.patience_seconds
        self._mine.client, self._mine.process = client, os.getpid()
        return client

    def reader(self) -> bag_places.BagSource:
        """The running server, else the record. Starts nothing. Raises NotFound if there is no
        record."""
        if self._is_there():
            return self.client()
        from covey.wiring import open_reader

        try:
            source: bag_places.BagSource = open_reader(self.config.directory)
        except NotFound:
            raise NotFound("no bags here yet; covey.submit(…) makes one") from None
        return source

    @property
    def is_remote(self) -> bool:
        """Whether the server is another one than this directory's own."""
        return self._endpoint is not None

    def _is_there(self) -> bool:
        return self.is_remote or embedded.is_held(self.config.directory)


def _bag_cells(bag: Bag) -> Iterable[object]:
    view = bag.known
    return view.id, view.name, view.status, view.total, view.done, view.failed, view.running


def _pilot_cells(pilot: PilotView) -> Iterable[object]:
    return pilot.id, pilot.host, pilot.site, pilot.status, pilot.slots, pilot.running


def _host_cells(host: HostView) -> Iterable[object]:
    return host.host, host.site, host.slots, host.running, host.done, host.failed


_BAGS = (("bag", "name", "status", "tasks", "done", "failed", "running"), _bag_cells)
_PILOTS = (("pilot", "host", "site", "status", "slots", "running"), _pilot_cells)
_HOSTS = (("host", "site", "slots", "running", "done", "failed"), _host_cells)

# `help` and editors show the keywords of `submit`, and what they mean.
submit.__doc__ = Connection.submit.__doc__
submit.__signature__ = SUBMIT_SIGNATURE  # type: ignore[attr-defined]
Connection.submit.__signature__ = SUBMIT_SIGNATURE.replace(  # type: ignore[attr-defined]
    parameters=[Parameter("self", Parameter.POSITIONAL_ONLY), *SUBMIT_SIGNATURE.parameters.values()]
)
