"""Commands of sites, and what they print."""

from collections.abc import Sequence
from typing import NamedTuple

MOST_LINES, MOST_CHARACTERS = 10, 600  # of a command's output in a message


class Command(NamedTuple):
    """`argv` is a list of words, never a line for a shell. The command ends after `seconds`."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    seconds: float = 60.0


class Output(NamedTuple):
    status: int  # below 0: ended by this signal; 127: there is no such command
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """The output for a message: all lines, or the last few. The reason is often not in the
        very last line."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines()]
        last = dict.fromkeys(line[:MOST_CHARACTERS] for line in lines[-MOST_LINES:] if line)
        return "; ".join(last)[-MOST_CHARACTERS:] or f"exit status {self.status}"


WRITE = (
    'file=$1 size=$2; shift 2; umask 077; cat >"$file" && test "$(wc -c <"$file")" -eq "$size" '
    '&& chmod 700 "$file" || exit 126; exec "$@"'
)


def after_writing(path: str, script: str, argv: Sequence[str]) -> Command:
    """For batch systems that want a file: the script, which holds secrets, comes by standard input
    and is written to a private file; then the command runs. Status 126: the file is not complete,
    and the command was not run."""
    data = script.encode()
    return Command(("/bin/sh", "-c", WRITE, "sh", path, str(len(data)), *argv), data)
