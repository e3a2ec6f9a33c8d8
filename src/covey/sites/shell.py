"""Runs the commands of sites: here, or over SSH.

A command has one of three results: its output (`Output`), that it surely did not run (`Away`), or
that this is not known (`Unclear`: it was stopped after its time, or the connection broke). It takes
no longer than its own limit, and a little more over SSH.

A command is a list of words, never a line for a local shell. Its output goes to files, not to
pipes: a daemon that it leaves behind could keep pipes open for ever. (Over SSH, the SSH server
waits for such a daemon.)

Each host has one SSH connection (ControlMaster of OpenSSH). It is checked before each command, and
opened again if it has ended; commands cannot open connections of their own. A command that hangs
ends the connection, since only a few commands fit into one. An unused connection ends by itself, so
that a killed server leaves none behind for long. SSH never asks for a password. The login shell of
the host reads the line, so words are quoted in a way that every kind of shell understands; what the
shell prints before the command starts is cut off.
"""

import contextlib
import itertools
import os
import select
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from covey.sites.commands import Command, Output
from covey.sites.errors import Away, Unclear

CONNECT_SECONDS = 30.0  # with the login shell's own start
CHECK_SECONDS = 10.0
PUT_SECONDS = 120.0
IDLE_SECONDS = 300  # after which an unused connection ends
MOST_BYTES = 64 << 20  # of a command's output
MOST_FOLDER = 50  # characters: a socket's path has 107 at most; ssh adds 17 while it connects
MARK = "covey-says-4b1f"
# For `sh`: print the mark, then become the command that is the first word.
BECOME = f'echo {MARK}; echo {MARK} >&2; eval "exec $(printf %b "$1")"'
# Characters that some login shells change between quotes, or do not allow there.
ESCAPES = {ord(letter): f"\\0{ord(letter):03o}" for letter in "\\\n!'"}
# A path as people write it: relative to the home directory, unless it is absolute.
PLACE = 'case $1 in /*) d=$1;; "~/"*) d=$HOME/${1#"~/"};; *) d=$HOME/$1;; esac; '
PUT = (
    'umask 077; cat >"$1.$$" && test "$(wc -c <"$1.$$")" -eq "$2" && mv -f "$1.$$" "$1" '
    '|| { rm -f "$1.$$"; exit 1; }'
)
SSH_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
)


class Shell(Protocol):
    def run(self, command: Command, environment: Mapping[str, str]) -> Output:
        """Raises Away or Unclear. One thread at a time."""
        ...

    def close(self) -> None: ...


def put(shell: Shell, path: str, data: bytes) -> None:
    """Write a private file, whole or not at all. Raises Away or Unclear."""
    words = ("/bin/sh", "-c", PUT, "sh", path, str(len(data)))
    output = shell.run(Command(words, data, PUT_SECONDS), {})
    if output.status:
        raise Unclear(f"{path} cannot be written: {output.words}")


class LocalShell:
    """This machine. Commands get the server's own environment and more."""

    def run(self, command: Command, environment: Mapping[str, str]) -> Output:
        return _run(command.argv, command.stdin, command.seconds, environment)

    def close(self) -> None:
        pass


class SshShell:
    """`host` as `ssh` understands it. `path` is for its socket: short, and in a private folder.
    `ssh` is the program, with options for every call."""

    def __init__(self, host: str, path: Path, ssh: Sequence[str] = ("ssh",)) -> None:
        self._host = host
        self._path = path
        options = [word for option in SSH_OPTIONS for word in ("-o", option)]
        self._ssh = [*ssh, "-T", "-x", "-S", str(self._path), *options]

    def run(self, command: Command, environment: Mapping[str, str]) -> Output:
        self._connect()
        # Without the connection this must fail, not open another one: `false` is its proxy.
        ssh = [*self._ssh, "-o", "ControlMaster=no", "-o", "ProxyCommand=false"]
        words = [*ssh, "--", self._host, remote_line(command.argv, environment)]
        try:
            output = _run(words, command.stdin, command.seconds, {})
        except Unclear:
            self.close()
            self._path.unlink(missing_ok=True)
            raise
        _, mark, stdout = output.stdout.partition(MARK + "\n")
        if output.status == 255 or output.status < 0:
            raise Unclear(f"the connection to {self._host} broke: {output.words}")
        if not mark:
            raise Away(f"{self._host} did not run the command: {output.words}")
        greeting, mark, stderr = output.stderr.partition(MARK + "\n")
        return Output(output.status, stdout, stderr if mark else greeting)

    def close(self) -> None:
        if self._path.exists():
            with contextlib.suppress(Unclear, Away):
                self._control("exit")

    def _connect(self) -> None:
        self._keep_folder()
        if self._path.exists():
            with contextlib.suppress(Unclear):
                if self._control("check").status == 0:
                    return
            self._path.unlink(missing_ok=True)
        if not self._host or self._host.startswith("-"):
            raise Away(f"{self._host!r} is not a host name: it must not be empty or begin with '-'")
        master = ["-o", "ControlMaster=yes", "-o", f"ControlPersist={IDLE_SECONDS}"]
        words = [*self._ssh, *master, "--", self._host, "true"]
        try:
            output = _run(words, b"", CONNECT_SECONDS, {})
        except Unclear as error:
            raise Away(f"cannot connect to {self._host}: {error}") from error
        if output.status:
            raise Away(f"cannot connect to {self._host}: {output.words}")

    def _keep_folder(self) -> None:
        """Make the folder again if a cleaner of temporary files removed it; then check its
        owner."""
        folder = self._path.parent
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError as error:
            raise Away(f"cannot make a directory for SSH connections: {error}") from error
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise Away(f"cannot use {folder} for SSH connections: other users have access to it")

    def _control(self, order: str) -> Output:
        return _run([*self._ssh, "-O", order, "--", self._host], b"", CHECK_SECONDS, {})


class Shells:
    """The shells of all sites of a server. `ssh` is the program, with options."""

    def __init__(self, ssh: Sequence[str] = ("ssh",)) -> None:
        self._ssh = ssh
        self._numbers = itertools.count()
        self._sockets: Path | None = None

    def to(self, host: str) -> Shell:
        """The shell of this host; of this machine if the name is empty."""
        if not host:
            return LocalShell()
        if self._sockets is None:
            self._sockets = socket_folder()
        return SshShell(host, self._sockets / str(next(self._numbers)), self._ssh)

    def close(self) -> None:
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)


def socket_folder() -> Path:
    """A new private folder with a path that is short enough."""
    place = tempfile.gettempdir()
    place = place if len(place) <= MOST_FOLDER else "/tmp"
    return Path(tempfile.mkdtemp(prefix="covey-", dir=place))


def remote_line(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """For a login shell, sh or csh: print the mark, then become the command."""
    settings = [f"{name}={value}" for name, value in environment.items()]
    line = shlex.join(["env", *settings, *argv]).translate(ESCAPES)
    return f"exec /bin/sh -c '{BECOME}' sh '{line}'"


def _run(
    argv: Sequence[str], stdin: bytes, seconds: float, environment: Mapping[str, str]
) -> Output:
    try:
        with (
            tempfile.TemporaryFile() as input_file,
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
        ):
            input_file.write(stdin)
            input_file.seek(0)
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=input_file,
                    stdout=stdout,
                    stderr=stderr,
                    env={**os.environ, **environment},
                    cwd=_home(),
                    start_new_session=True,
                )
            except FileNotFoundError:
                return Output(127, "", f"{argv[0]}: command not found")
            if not _ends(process, seconds):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise Unclear(f"{argv[0]} took longer than {seconds:g} s")
            return Output(process.wait(), _text(stdout), _text(stderr))
    except (OSError, ValueError) as error:  # no memory, no disk, a word with a zero byte
        raise Away(f"{argv[0]} cannot be run: {error}") from error


def _home() -> str:
    """The home directory: commands over SSH begin there, too."""
    home = os.path.expanduser("~")
    return home if os.path.isdir(home) else "/"


def _ends(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether the process ends in time."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.returncode is not None
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(fd)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unclear(f"it printed more than {MOST_BYTES >> 20} MB")
    return data.decode("utf-8", "replace")
