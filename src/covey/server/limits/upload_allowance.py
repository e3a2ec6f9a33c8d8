"""How much a pilot may upload for its attempts: for each attempt, as much as a task of its bag may
return in all files together. Sizes that an attempt has announced count, whether or not the bytes
arrive. They are forgotten when the attempt ends, or the server.
"""

from msgspec import Struct, field
from starlette.requests import Request

from covey.core.record.model import AttemptId, BagId, PilotId
from covey.pilot.protocol.messages import MOST_FILES
from covey.questions.pilot_questions import GonePilots, PilotWork
from covey.server.decider import Decider
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import number

FEW_PILOTS = 100


class _AnnouncedFiles(Struct):
    """The files that an attempt has announced: the size of each, and of all."""

    sizes: dict[str, int] = field(default_factory=dict)
    total: int = 0

    def add(self, digest: str, size: int, most_bytes: int, most_files: int) -> None:
        """Raises HttpProblem if the task may not return that much."""
        before = self.sizes.get(digest, 0)
        total = self.total - before + max(before, size)
        if total > most_bytes:
            words = (
                f"the files of this attempt have {total:,} bytes; a task may return at most "
                f"{most_bytes:,}"
            )
            raise HttpProblem(413, "too-large", words)
        if digest not in self.sizes and len(self.sizes) >= most_files:
            raise HttpProblem(413, "too-large", f"a task may return at most {most_files:,} files")
        self.sizes[digest], self.total = max(before, size), total


class Allowance:
    def __init__(self) -> None:
        # By pilot and attempt.
        self._sent: dict[PilotId, dict[AttemptId, _AnnouncedFiles]] = {}
        self._most = FEW_PILOTS  # with more pilots than this, forget those that have gone

    def claim(self, work: PilotWork, request: Request, digest: str) -> BagId:
        """The bag of the attempt that returns this file. Raises HttpProblem if the pilot may not
        send it."""
        size, named = size_of(request), request.query_params.get("attempt", "")
        sent = self._sent.setdefault(work.pilot, {})
        attempts = dict(work.attempts)
        for ended in [attempt for attempt in sent if attempt not in attempts]:
            del sent[ended]
        attempt = _attempt(named)
        bag = attempts.get(attempt)
        if bag is None or bag not in work.bags:
            raise HttpProblem(403, "not-yours", f"this pilot does not run attempt {named[:100]}")
        files = sent.setdefault(attempt, _AnnouncedFiles())
        files.add(digest, size, work.bags[bag].output_mb << 20, MOST_FILES)
        return bag

    def forget(self, decider: Decider) -> None:
        """Forget pilots that have gone, if there may be many."""
        if len(self._sent) > self._most:
            for gone in decider.ask(GonePilots(tuple(self._sent))):
                del self._sent[gone]
            self._most = max(FEW_PILOTS, 2 * len(self._sent))


def size_of(request: Request) -> int:
    size = number(request, "size", -1)
    if size < 0:
        raise HttpProblem(400, "invalid", "give the size of the whole file in bytes: ?size=NUMBER")
    return size


def _attempt(text: str) -> AttemptId:
    epoch, _, sequence = text.partition(".")
    if not all(
        part.isascii() and part.isdecimal() and len(part) < 20 for part in (epoch, sequence)
    ):
        words = f"attempt must be EPOCH.SEQUENCE, two whole numbers, not {text[:100]!r}"
        raise HttpProblem(400, "invalid", words)
    return AttemptId(int(epoch), int(sequence))
