"""What tasks printed and returned, kept on disk while the server is away.

Ends are small, but outputs are not: during an outage they wait in one file, and memory has only
their places in it. The file is removed as soon as everything in it is delivered.
"""

import json
import os
from typing import Dict, List, NamedTuple, Tuple

from covey.pilot.protocol.messages import HOST, End, OutputFile


class _Place(NamedTuple):
    start: int
    size: int
    precious: bool  # without it the attempt is worthless


class Spool:
    def __init__(self, path: str) -> None:
        self._path = path
        self._places: Dict[Tuple[int, int], _Place] = {}

    def put(self, end: End) -> End:
        """The end without its outputs, which are now on disk; the same end if that fails."""
        if not (end.stdout or end.stderr or end.result or end.files):
            return end
        try:
            with open(self._path, "ab") as file:
                start = file.tell()
                kept = [end.stdout, end.stderr, end.result, end.files]
                data = json.dumps(kept).encode("utf-8")
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return end  # the disk is full: keep it in memory
        self._places[(end.epoch, end.sequence)] = _Place(
            start, len(data), bool(end.result or end.files)
        )
        return end._replace(stdout="", stderr="", result="", files=[])

    def filled(self, ends: List[End]) -> List[End]:
        """The ends with their outputs, ready to be sent."""
        return [self._fill(end) for end in ends] if self._places else ends

    def _fill(self, end: End) -> End:
        place = self._places.get((end.epoch, end.sequence))
        if place is None:
            return end
        try:
            with open(self._path, "rb") as file:
                file.seek(place.start)
                kept = json.loads(file.read(place.size).decode("utf-8"))
            stdout, stderr, result, files = kept
        except (OSError, ValueError) as error:
            words = "[the output was lost on the host: %s]" % error
            if place.precious:
                return end._replace(outcome=HOST, message=words)
            return end._replace(stderr=words)
        rows = [OutputFile(*row) for row in files]
        return end._replace(stdout=stdout, stderr=stderr, result=result, files=rows)

    def forget(self, end: End) -> None:
        """The output of this end is not to be sent."""
        self._places.pop((end.epoch, end.sequence), None)

    def delivered(self) -> None:
        """Everything that was put here has reached the server."""
        if self._places:
            self._places.clear()
            self.close()

    def close(self) -> None:
        try:
            os.unlink(self._path)
        except OSError:
            pass
