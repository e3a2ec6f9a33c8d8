"""Commands of sites, and what they print."""

from collections.abc import Sequence
from typing import NamedTuple

MOST_LINES, MOST_WORDS = 10, 600  # of what a command printed: lines, and characters


class Command(NamedTuple):
    """`argv`, never a shell's line; `stdin` is what it reads. It is stopped after `seconds`."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    seconds: float = 60.0


class Output(NamedTuple):
    status: int  # below 0: by this signal; 127: no such command
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """What it printed, for people: all its lines, or the last of them if they are many. The
        reason often stands before the last line."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines()]
        found = "; ".join(dict.fromkeys(line[:MOST_WORDS] for line in lines[-MOST_LINES:] if line))
        return found[-MOST_WORDS:] or f"exit status {self.status}"


WRITE = (
    'file=$1 size=$2; shift 2; umask 077; cat >"$file" && test "$(wc -c <"$file")" -eq "$size" '
    '&& chmod 700 "$file" || exit 126; exec "$@"'
)


def after_writing(path: str, script: str, argv: Sequence[str]) -> Command:
    """For systems that want a file: the script arrives by standard input, as it holds secrets, and
    goes into a private file; if all of it did, this command is run. Status 126: it was not."""
    data = script.encode()
    return Command(("/bin/sh", "-c", WRITE, "sh", path, str(len(data)), *argv), data)
