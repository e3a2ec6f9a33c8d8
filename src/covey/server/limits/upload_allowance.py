"""How much a pilot may send for its attempts: each as much as a task of its bag may return, in all
its files together. What an attempt has announced counts, whether or not it arrives; it is forgotten
when the attempt has ended, or the server.
"""

from msgspec import Struct, field
from starlette.requests import Request

from covey.core.record.model import AttemptId, BagId, BagSpec, PilotId
from covey.core.state import Pilot, State
from covey.pilot.protocol.messages import MOST_FILES
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import number


class _AnnouncedFiles(Struct):
    """Those that were announced: the size of each, and of all."""

    sizes: dict[str, int] = field(default_factory=dict)
    total: int = 0

    def add(self, digest: str, size: int, most_bytes: int, most_files: int) -> None:
        """Raises HttpProblem."""
        known = self.sizes.get(digest, 0)
        total = self.total - known + max(known, size)
        if total > most_bytes:
            words = f"the files have {total:,} bytes; a task may return {most_bytes:,}"
            raise HttpProblem(413, "too-large", words)
        if digest not in self.sizes and len(self.sizes) >= most_files:
            raise HttpProblem(413, "too-large", f"a task may return at most {most_files:,} files")
        self.sizes[digest], self.total = max(known, size), total


class Allowance:
    def __init__(self) -> None:
        self._sent: dict[PilotId, dict[AttemptId, _AnnouncedFiles]] = {}

    def claim(
        self, pilot: Pilot, specs: dict[BagId, BagSpec], request: Request, digest: str
    ) -> BagId:
        """The bag that this file, a piece of which comes, is for. Raises HttpProblem if the pilot
        may not send it."""
        size, named = size_of(request), request.query_params.get("attempt", "")
        sent = self._sent.setdefault(pilot.record.id, {})
        for ended in [one for one in sent if one not in pilot.attempts]:
            del sent[ended]
        attempt = pilot.attempts.get(_attempt(named))
        if attempt is None or attempt.bag not in specs:
            raise HttpProblem(403, "not-yours", f"this pilot has no attempt {named[:100]}")
        files = sent.setdefault(attempt.id, _AnnouncedFiles())
        files.add(digest, size, specs[attempt.bag].output_mb << 20, MOST_FILES)
        return attempt.bag

    def forget(self, state: State) -> None:
        """Pilots that are not here any more."""
        if len(self._sent) > len(state.pilots):
            for gone in [one for one in self._sent if one not in state.pilots]:
                del self._sent[gone]


def size_of(request: Request) -> int:
    size = number(request, "size", -1)
    if size < 0:
        raise HttpProblem(400, "invalid", "give the size of the whole file in bytes: ?size=NUMBER")
    return size


def _attempt(text: str) -> AttemptId:
    epoch, _, sequence = text.partition(".")
    if not all(one.isascii() and one.isdecimal() and len(one) < 20 for one in (epoch, sequence)):
        raise HttpProblem(400, "invalid", "name the attempt: ?attempt=EPOCH.SEQUENCE")
    return AttemptId(int(epoch), int(sequence))
