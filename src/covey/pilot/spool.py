"""What tasks printed, kept on disk while the server is away.

Ends are small, but outputs are not: through an outage they wait in one file, and only where they
lie there is kept in memory. The file is emptied as soon as everything in it is delivered.
"""

import json
import os
from typing import Dict, Tuple

from covey.pilot.messages import End


class Spool:
    def __init__(self, path: str) -> None:
        self._path = path
        self._places: Dict[Tuple[int, int], Tuple[int, int]] = {}

    def put(self, end: End) -> End:
        """The end without its outputs, which are on disk now; as it was if they cannot be."""
        if not end.stdout and not end.stderr:
            return end
        try:
            with open(self._path, "ab") as file:
                start = file.tell()
                data = json.dumps([end.stdout, end.stderr]).encode("utf-8")
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return end  # full disk: memory has room for what a pilot holds
        self._places[(end.epoch, end.sequence)] = (start, len(data))
        return end._replace(stdout="", stderr="")

    def fill(self, end: End) -> End:
        """The end with its outputs, to be sent."""
        place = self._places.get((end.epoch, end.sequence))
        if place is None:
            return end
        try:
            with open(self._path, "rb") as file:
                file.seek(place[0])
                stdout, stderr = json.loads(file.read(place[1]).decode("utf-8"))
        except (OSError, ValueError) as error:
            return end._replace(stderr="[the output was lost on the host: %s]" % error)
        return end._replace(stdout=stdout, stderr=stderr)

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
