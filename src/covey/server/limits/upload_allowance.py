"""How much a pilot may send for its attempts: each as much as a task of its bag may return, in all
its files together. What an attempt has announced counts, whether or not it arrives; it is forgotten
when the attempt has ended, or the server.
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
        # By pilot and attempt.
        self._sent: dict[PilotId, dict[AttemptId, _AnnouncedFiles]] = {}
        self._most = FEW_PILOTS  # that are remembered before those that have gone are forgotten

    def claim(self, work: PilotWork, request: Request, digest: str) -> BagId:
        """The bag that this file, a piece of which comes, is for. Raises HttpProblem if the pilot
        may not send it."""
        size, named = size_of(request), request.query_params.get("attempt", "")
        sent = self._sent.setdefault(work.pilot, {})
        attempts = dict(work.attempts)
        for ended in [one for one in sent if one not in attempts]:
            del sent[ended]
        attempt = _attempt(named)
        bag = attempts.get(attempt)
        if bag is None or bag not in work.bags:
            raise HttpProblem(403, "not-yours", f"this pilot has no attempt {named[:100]}")
        files = sent.setdefault(attempt, _AnnouncedFiles())
        files.add(digest, size, work.bags[bag].output_mb << 20, MOST_FILES)
        return bag

    def forget(self, decider: Decider) -> None:
        """Pilots that are not here any more, if there may be many."""
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
    if not all(one.isascii() and one.isdecimal() and len(one) < 20 for one in (epoch, sequence)):
        raise HttpProblem(400, "invalid", "name the attempt: ?attempt=EPOCH.SEQUENCE")
    return AttemptId(int(epoch), int(sequence))
