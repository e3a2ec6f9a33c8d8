"""Problem documents (RFC 9457): what was wrong with a request, and what to do about it."""

import msgspec

from covey.core.record.actions import Problem, Refuse
from covey.server.web.gateway import Unavailable
from covey.wire import ProblemDocument

_STATUS = {
    Problem.INVALID: 400,
    Problem.NOT_FOUND: 404,
    Problem.STALE: 409,
    Problem.OUT_OF_ORDER: 409,
    Problem.SUPERSEDED: 409,
    Problem.UNKNOWN_PILOT: 410,
    Problem.TOO_MANY: 429,
    Problem.INTERNAL: 500,
}

_TITLES = {
    400: "The request is not valid",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Not possible in the present state",
    410: "Gone",
    413: "Too large",
    422: "Wrong digest",
    429: "Too many",
    500: "Error in the server",
    503: "Not available now",
}


class HttpProblem(Exception):
    """Raised anywhere in a handler; becomes the answer."""

    def __init__(self, status: int, kind: str, detail: str, retry_seconds: float = 0) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.retry_seconds = retry_seconds

    def body(self) -> bytes:
        title = _TITLES.get(self.status, "Problem")
        document = ProblemDocument(
            type=self.kind, title=title, status=self.status, detail=self.detail
        )
        return msgspec.json.encode(document)

    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", b"application/problem+json")]
        if self.retry_seconds:
            # With fractions of a second: pilots have a time slot in a line.
            headers.append((b"retry-after", f"{self.retry_seconds:.4g}".encode()))
        return headers


def no_bag(bag: int) -> HttpProblem:
    return HttpProblem(404, "not-found", f"there is no bag {bag}")


def wrong_method(method: str, allowed: str) -> HttpProblem:
    return HttpProblem(405, "invalid", f"{method} is not allowed here; use {allowed}")


def cut_off() -> HttpProblem:
    """For the log of refusals: the client that would read it has gone."""
    words = "the connection was closed before the request was complete"
    return HttpProblem(400, "invalid", words)


def our_error() -> HttpProblem:
    words = "the server could not handle this; see its log"
    return HttpProblem(500, Problem.INTERNAL.value, words)


def from_refusal(refusal: Refuse | Unavailable) -> HttpProblem:
    if isinstance(refusal, Unavailable):
        return HttpProblem(503, "unavailable", refusal.reason, refusal.retry_seconds)
    status = _STATUS[refusal.problem]
    return HttpProblem(status, refusal.problem.value, refusal.detail, 2 if status == 429 else 0)
