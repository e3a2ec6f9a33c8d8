"""Structured logs: one JSON object a line, with the ids of bag, task, attempt and pilot."""

import json
import logging
import sys
import time
from typing import TextIO

import msgspec

from covey.core.record.actions import Note

_DEFAULTS = msgspec.structs.asdict(Note(""))


class JsonLog:
    """The engine's Log port. A full disk must not stop the server: lines may be lost then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def note(self, note: Note) -> None:
        fields = msgspec.structs.asdict(note)
        self.line(**{name: value for name, value in fields.items() if value != _DEFAULTS[name]})

    def line(self, what: str, **fields: object) -> None:
        now = time.time()
        stamp = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        )
        try:
            self._stream.write(json.dumps({"time": stamp, "what": what, **fields}) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass


class JsonHandler(logging.Handler):
    """Log messages of libraries, in the same form."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.line(record.name, detail=self.format(record))
