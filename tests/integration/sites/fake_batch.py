"""A driver for `fake-batch`, a batch system in a directory."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from covey.core.record.model import SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Command, Output
from covey.sites.driver import Seen, Stand
from covey.sites.errors import Refused, Unclear

PROGRAM = Path(__file__).parent / "fake-batch"
FAKE = "FAKE"


class NoOptions(Struct, frozen=True):
    pass


class FakeBatch(CommandDriver):
    """`seconds`: how long a command may take."""

    name = "fake"
    options: type[Struct] = NoOptions
    index = "$FAKE_INDEX"
    environment: Mapping[str, str] = {}

    def __init__(self, most_elements: int = 100, seconds: float = 20.0) -> None:
        self.most_elements = most_elements
        self._seconds = seconds

    def _command(self, *words: str, stdin: bytes = b"") -> Command:
        return Command((str(PROGRAM), *words), stdin, self._seconds)

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        count = str(len(batch.names))
        return self._command("submit", batch.title, count, stdin=batch.script.encode())

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        if output.status == 3:
            raise Refused(output.words)
        if output.status or not output.stdout.startswith("submitted "):
            raise Unclear(output.words)
        number = output.stdout.split()[1]
        if len(batch.names) == 1:
            return (number,)
        return tuple(f"{number}_{index}" for index in range(len(batch.names)))

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        return self._command("list", prefix)

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        lines = output.stdout.splitlines()
        if output.status or lines[-1:] != ["end"]:
            raise Unclear(output.words)
        return [_seen(line) for line in lines[:-1]]

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        return self._command("cancel", *handles)

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        return self._command("account", *handles)

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        if output.status:
            raise Unclear(output.words)
        return [_seen(line) for line in output.stdout.splitlines()]


def _seen(line: str) -> Seen:
    name, handle, state, restarts, reason = line.split(" ", 4)
    return Seen(name, handle, Stand(state), reason, int(restarts))
