"""Asks resource priority services what sites are worth, one thread for each service.

A service answers a GET request with a JSON object: `{"weights": {"alpha": 3, "beta": 0.5}}`, or
with these weights alone. The answer is bounded in size, number and time; whatever goes wrong is
told to core, which then goes on with the last weights as long as they are fresh.
"""

import re
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence

import msgspec

from covey.core.record.broker_rules import WeightService
from covey.core.record.events import WeightsFailed, WeightsGiven
from covey.ports import Post

MOST_BYTES = 256 << 10  # of an answer
PIECE = 8192
_MOST_REASON = 300  # characters


class _Answer(msgspec.Struct):
    weights: dict[str, float]


class WeightServices:
    """`fetch` gets the answer of a service; tests have their own."""

    def __init__(
        self,
        services: Sequence[WeightService],
        post: Post,
        fetch: Callable[[WeightService], bytes] | None = None,
    ) -> None:
        self._services = [service for service in services if service.url]
        self._post = post
        self._fetch = fetch or fetch_answer
        self._over = threading.Event()
        self._started = False

    def start(self) -> None:
        """The second call does nothing."""
        if self._started:
            return
        self._started = True
        for service in self._services:
            name = f"weights of {service.name}"
            threading.Thread(target=self._run, args=(service,), name=name, daemon=True).start()

    def close(self) -> None:
        """A question that is on its way is left alone: nobody waits for its answer."""
        self._over.set()

    def _run(self, service: WeightService) -> None:
        while not self._over.is_set():
            event = self._ask(service)
            if self._over.is_set():
                return
            self._post(event)
            self._over.wait(service.every_seconds)

    def _ask(self, service: WeightService) -> WeightsGiven | WeightsFailed:
        try:
            weights = read_weights(self._fetch(service))
        except Exception as error:  # of a program that is not ours anything may come
            words = str(error) or type(error).__name__
            reason = f"{_shown(service.url)} did not answer well: {words}"
            return WeightsFailed(service.name, reason[:_MOST_REASON])
        return WeightsGiven(None, service.name, weights, _shown(service.url))


def _shown(url: str) -> str:
    """The address without what may be secret in it: everybody who may use a site reads this."""
    scheme, _, rest = url.partition("://")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def fetch_answer(service: WeightService) -> bytes:
    """Raises OSError, also if the answer is not complete in time, or too large."""
    until = time.monotonic() + service.timeout_seconds
    content = b""
    with urllib.request.urlopen(
        service.url, timeout=service.timeout_seconds
    ) as response:  # http and https only: see the settings
        while piece := response.read1(PIECE):
            content += piece
            if len(content) > MOST_BYTES:
                raise OSError(f"the answer has more than {MOST_BYTES:,} bytes")
            if time.monotonic() > until:
                raise OSError(f"the answer took more than {service.timeout_seconds:g} s")
    return content


def read_weights(content: bytes) -> dict[str, float]:
    """Raises msgspec.DecodeError."""
    try:
        return msgspec.json.decode(content, type=_Answer).weights
    except msgspec.ValidationError:
        return msgspec.json.decode(content, type=dict[str, float])
