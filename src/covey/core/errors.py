"""The error tree.

    CoveyError
    ├── InvalidBag        the bag cannot run as it is written; the text is for its author
    ├── InvalidQuery      a question about results has a mistake
    │   ├── TookTooLong   … or needs more time than the server gives to one question
    │   └── PageTooLong   … or has a longer answer than one page may be
    ├── NotFound          no such bag, task or pilot
    ├── BadFile           a file does not have the announced content
    ├── StoreError        the record cannot be used
    │   ├── StoreHeld     another server holds it
    │   ├── StoreNewer    written by a newer covey
    │   ├── StoreGone     its file was removed or replaced under the server
    │   └── StoreFailed   a write failed (disk full, …); may work again later
    ├── ServerAway        no server answers
    │   ├── ServerStopped somebody has stopped it
    │   └── Unconfirmed   a submission was sent, and its answer did not come
    ├── InsideTask        a server was to be started inside a task
    ├── BagPaused         a wait ended because the bag is paused, and does not end by itself
    ├── StillRunning      the bag was not over in the given time, and goes on (also a TimeoutError)
    ├── Refused           the server understood and said no
    └── BadConfig         a setting is unknown or has the wrong type

Facts are attributes; the text says what to do next.
"""


class CoveyError(Exception):
    """Everything that covey raises on purpose."""


class InvalidBag(CoveyError):
    pass


class InvalidQuery(CoveyError):
    pass


class TookTooLong(InvalidQuery):
    pass


class PageTooLong(InvalidQuery):
    def __init__(self, most_bytes: int, fitting: int) -> None:
        super().__init__(
            f"this page has more than {most_bytes >> 20} MB: ask for at most {fitting} rows "
            f"(limit={fitting}), or get a file (format=csv or jsonl)"
        )


class NotFound(CoveyError):
    pass


class BadFile(CoveyError):
    pass


class StoreError(CoveyError):
    pass


class StoreHeld(StoreError):
    def __init__(self, path: str, holder: str) -> None:
        super().__init__(
            f"{path} is in use by {holder}. "
            "Use that server (any covey command in this directory does), or stop it first "
            "with 'covey stop'."
        )
        self.path = path
        self.holder = holder


class StoreNewer(StoreError):
    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} was written by a newer covey (schema {found}, this one knows {known}). "
            "Upgrade covey, or use another directory."
        )
        self.found = found
        self.known = known


class StoreGone(StoreError):
    def __init__(self, path: str, how: str) -> None:
        super().__init__(
            f"{path} was {how} while this server used it. The server stops now, and accepts "
            "nothing more. Bring the directory back if you can, then start covey again."
        )
        self.path = path


class StoreFailed(StoreError):
    pass


class ServerAway(CoveyError):
    """`asked`: the request may have reached the server, and may take effect later."""

    def __init__(self, text: str, asked: bool = False) -> None:
        super().__init__(text)
        self.asked = asked


class ServerStopped(ServerAway):
    pass


class InsideTask(CoveyError):
    """No server is started inside a task."""


class Unconfirmed(ServerAway):
    """`key`: of the submission. Submitting again with the same key makes no second bag."""

    def __init__(self, text: str, key: str) -> None:
        super().__init__(
            f"{text}. The bag was sent, and may exist nevertheless: then 'covey bags' shows it. To "
            f"submit it again without making a second bag, add: --key {key}",
            asked=True,
        )
        self.key = key


class BagPaused(CoveyError):
    def __init__(self, bag: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.bag = bag
        self.reason = reason


class StillRunning(CoveyError, TimeoutError):
    def __init__(self, bag: int, text: str) -> None:
        super().__init__(text)
        self.bag = bag


class Refused(CoveyError):
    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail or title)
        self.status = status
        self.title = title
        self.detail = detail


class BadConfig(CoveyError):
    pass
