"""The seam through which the commands of sites run: here, or over SSH.

Whoever asks for a command learns one of three things: what it said (`Output`), that it surely did
not run (`Away`), or that nobody knows (`Unclear`: it was stopped after its time, or the
connection broke). It never waits for longer than the command's own limit, and a little for SSH.

A command is a list of words that no shell of ours reads. Its output goes to files, not pipes: a
daemon that it leaves behind may keep them open for ever. (Over SSH the server there waits for it.)

Over SSH there is one connection for each host, OpenSSH's own (ControlMaster). It is looked at
before each command and made anew when it is gone; no command can make one of its own. A command
that hangs takes it along: a connection has room for a few only. It ends by itself when nobody uses
it for a while, so that a server that was killed leaves none behind for long. Nobody is ever asked
for a password. The login shell there reads our line, so words are quoted, for any kind of shell;
what it prints of its own before our command starts is cut off.
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
IDLE_SECONDS = 300  # after which a connection that nobody uses ends
MOST_BYTES = 64 << 20  # of what a command says
MOST_FOLDER = 50  # letters: a socket's path has 107 at most, and ssh adds 17 for a moment
MARK = "covey-says-4b1f"
# For `sh`: say that we are there, then become the command that is the first word.
BECOME = f'echo {MARK}; echo {MARK} >&2; eval "exec $(printf %b "$1")"'
# What not every login shell leaves alone between quotes, or cannot be there.
ESCAPES = {ord(letter): f"\\0{ord(letter):03o}" for letter in "\\\n!'"}
# A path as people write it: below the home of whoever runs the commands, unless it is absolute.
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
    """A private file, all of it or none. Raises Away or Unclear."""
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
    """`host` as `ssh` understands it. `path` is for its socket, short, in a private folder, and for
    nobody else. `ssh` is the program, with options that hold for every call."""

    def __init__(self, host: str, path: Path, ssh: Sequence[str] = ("ssh",)) -> None:
        self._host = host
        self._path = path
        options = [word for option in SSH_OPTIONS for word in ("-o", option)]
        self._ssh = [*ssh, "-T", "-x", "-S", str(self._path), *options]

    def run(self, command: Command, environment: Mapping[str, str]) -> Output:
        self._connect()
        # Without our connection it shall fail, not make one: its proxy is a program that gives up.
        ssh = [*self._ssh, "-o", "ControlMaster=no", "-o", "ProxyCommand=false"]
        words = [*ssh, "--", self._host, remote_line(command.argv, environment)]
        try:
            output = _run(words, command.stdin, command.seconds, {})
        except Unclear:
            self.close()
            self._path.unlink(missing_ok=True)
            raise
        _, mark, said = output.stdout.partition(MARK + "\n")
        if output.status == 255 or output.status < 0:
            raise Unclear(f"the connection to {self._host} broke: {output.words}")
        if not mark:
            raise Away(f"{self._host} does not let us run commands: {output.words}")
        greeting, mark, complained = output.stderr.partition(MARK + "\n")
        return Output(output.status, said, complained if mark else greeting)

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
        """Temporary directories are swept now and then, and then anybody may have the name."""
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
        """Of this host; of this machine, if none is named."""
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
    """For a login shell, be it sh or csh: say that we are there, then become the command."""
    settings = [f"{name}={value}" for name, value in environment.items()]
    line = shlex.join(["env", *settings, *argv]).translate(ESCAPES)
    return f"exec /bin/sh -c '{BECOME}' sh '{line}'"


def _run(
    argv: Sequence[str], stdin: bytes, seconds: float, environment: Mapping[str, str]
) -> Output:
    try:
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as said,
            tempfile.TemporaryFile() as complained,
        ):
            given.write(stdin)
            given.seek(0)
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=given,
                    stdout=said,
                    stderr=complained,
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
            return Output(process.wait(), _text(said), _text(complained))
    except (OSError, ValueError) as error:  # no memory, no disk, a word with a zero byte
        raise Away(f"{argv[0]} cannot be run: {error}") from error


def _home() -> str:
    """Where commands run over SSH, too, so that they are the same."""
    home = os.path.expanduser("~")
    return home if os.path.isdir(home) else "/"


def _ends(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether it does so in time."""
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
