"""The hosts of inputs' URLs, and which of them may be asked now. Pure.

The rule: a host that does not answer must not block the threads for other hosts. A host that has
not answered yet, or no longer answers, is asked by one thread at a time, with growing pauses. After
MOST_FAILURES in a row everybody who waits for one of its files is told at once.
"""

from collections import OrderedDict
from typing import NamedTuple
from urllib.parse import urlsplit

MOST_HOSTS = 1000  # that are remembered
MOST_FAILURES = 5
ASKED_SECONDS = 0.2  # to wait while another thread asks the host
FIRST_REST = 0.2
LAST_REST = 30.0


class UrlHost(NamedTuple):
    failures: int = 0  # in a row
    rests_until: float = 0.0
    asked: bool = False  # a thread asks it now
    answered: bool = False  # at the last try
    problem: str = ""


class UrlHosts:
    def __init__(self) -> None:
        self._hosts: "OrderedDict[str, UrlHost]" = OrderedDict()

    def begin(self, url: str, now: float) -> float:
        """Seconds to wait before this URL may be asked for. If 0, ask now, and call `answered` or
        `failed` afterwards."""
        name = host_of(url)
        host = self._hosts.get(name, UrlHost())
        if host.answered:
            return 0.0
        if host.asked:
            return ASKED_SECONDS
        if now < host.rests_until:
            return host.rests_until - now
        self._keep(name, host._replace(asked=True))
        return 0.0

    def answered(self, url: str) -> None:
        self._keep(host_of(url), UrlHost(answered=True))

    def failed(self, url: str, problem: str, now: float) -> None:
        name = host_of(url)
        failures = self._hosts.get(name, UrlHost()).failures + 1
        rest = min(FIRST_REST * 2 ** min(failures - 1, 20), LAST_REST)
        self._keep(name, UrlHost(failures, now + rest, problem=problem))

    def leave(self, url: str) -> None:
        """The thread that called `begin` is done, even if it did not ask."""
        name = host_of(url)
        host = self._hosts.get(name)
        if host is not None and host.asked:
            self._keep(name, host._replace(asked=False))

    def problem(self, url: str) -> str:
        """Why the host of this URL does not answer, if it has failed often enough."""
        host = self._hosts.get(host_of(url), UrlHost())
        return host.problem if host.failures >= MOST_FAILURES else ""

    def _keep(self, name: str, host: UrlHost) -> None:
        self._hosts[name] = host
        self._hosts.move_to_end(name)
        while len(self._hosts) > MOST_HOSTS:
            self._hosts.popitem(last=False)


def host_of(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()[:255]
    except ValueError:
        return ""
