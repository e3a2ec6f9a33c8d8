"""Real SSH servers on this machine, each one a host with a name, an address and a home of its own.

All of them are in one configuration for clients (`-F`), under their names. A session has a home
below the place, so that nothing is written to the home of whoever runs the tests; what else it
shall have in its environment (`SLURM_CONF`: a login node) is said when the host is made. Only the
user that runs the tests may log in.

What took us time to find out:
- MaxSessions 10 and MaxStartups 10:30:100 are what real servers have, and what breaks clients that
  do much at once over one connection, or open many;
- as root a server wants /run/sshd, and accounts with `!` for a password count as locked.
"""

import os
import pwd
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.world import kill, send
from tests.testbed.place import (
    System,
    alone,
    clean_environment,
    descendants,
    free_ports,
    program,
)

SERVER = """\
Port {port}
ListenAddress {address}
HostKey {root}/server_key
PidFile {root}/{name}.pid
AuthorizedKeysFile {root}/client_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
PermitRootLogin prohibit-password
AllowUsers {user}
MaxSessions {max_sessions}
MaxStartups {max_startups}
PrintMotd no
LogLevel VERBOSE
Subsystem sftp internal-sftp
SetEnv {environment}
"""
CLIENT = """\
Host {name}
  HostName {address}
  Port {port}
  User {user}
  IdentityFile {root}/client_key
  IdentitiesOnly yes
  UserKnownHostsFile {root}/known_hosts
  GlobalKnownHostsFile /dev/null
  HostKeyAlias testbed
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 5

"""


class Host:
    """`name` is what clients call it; `home` is where its sessions believe to be at home."""

    def __init__(self, name: str, address: str, port: int, home: Path) -> None:
        self.name = name
        self.address = address
        self.port = port
        self.home = home


class SshHosts(System):
    """Starts with the host `login`; `add` makes more."""

    kind = "ssh"

    def __init__(
        self,
        address: str = "127.0.0.1",
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        max_sessions: int = 10,
        max_startups: str = "10:30:100",
        within: Sequence[str] = (),
    ) -> None:
        super().__init__(within)
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.address = address
        self._port = port  # 0: a free one for each
        self.config = self.place.root / "ssh_config"
        self.key = self.place.root / "client_key"
        self.hosts: dict[str, Host] = {}
        self._environment = dict(environment or {})
        self._limits = (max_sessions, max_startups)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    # -- starting --------------------------------------------------------------------------

    def launch(self) -> None:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        for name in ("server_key", "client_key"):
            words = ("-q", "-t", "ed25519", "-N", "", "-C", name, "-f")
            path = str(self.place.root / name)
            subprocess.run([program("ssh-keygen"), *words, path], check=True, timeout=30)
        self.key.with_suffix(".pub").chmod(0o644)
        self._make("login", {})

    def add(self, name: str, environment: Mapping[str, str] | None = None) -> Host:
        with alone():
            host = self._make(name, environment or {})
        self.wait(lambda: self.answers(name))
        return host

    def _make(self, name: str, environment: Mapping[str, str]) -> Host:
        home = self.place.folder(f"homes/{name}")
        host = Host(name, self.address, self._port or free_ports(1)[0], home)
        in_session = {
            **self._environment,
            **environment,
            "HOME": str(home),
            "TESTBED_MARK": str(self.place.root),
            "TESTBED_HOST": name,
        }
        facts = {
            "name": name,
            "address": host.address,
            "port": host.port,
            "user": self.user,
            "root": self.place.root,
            "max_sessions": self._limits[0],
            "max_startups": self._limits[1],
            "environment": " ".join(f"{one}={text}" for one, text in in_session.items()),
        }
        self.place.write(f"{name}.conf", SERVER.format(**facts))
        key = " ".join((self.place.root / "server_key.pub").read_text().split()[:2])
        self.place.write("known_hosts", f"testbed {key}\n")
        with self.config.open("a") as config:
            config.write(CLIENT.format(**facts))
        self.hosts[name] = host
        self._start(name)
        return host

    def _start(self, name: str) -> None:
        configuration = str(self.place.root / f"{name}.conf")
        command = [*self.within, program("sshd"), "-D", "-e", "-f", configuration]
        self._daemons[name] = self.place.start(name, command)
        self.place.wait_listening(self._daemons[name], self.hosts[name].port)

    def is_ready(self) -> bool:
        return all(self.answers(name) for name in self.hosts)

    # -- commands --------------------------------------------------------------------------

    def command(self, name: str, *words: str) -> list[str]:
        """The command that runs these words there."""
        return ["ssh", "-F", str(self.config), name, shlex.join(words)]

    def run(self, name: str, *words: str, text: str = "", check: bool = True) -> str:
        done = subprocess.run(
            self.command(name, *words),
            env=clean_environment(),
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not check or done.returncode == 0, f"{name}: {' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def answers(self, name: str) -> bool:
        return self.run(name, "echo", "here", check=False) == "here"

    # -- misfortunes -----------------------------------------------------------------------

    def stop(self, name: str) -> None:
        """As when the host loses its power: its server and all sessions end at once. (What has
        left its session, as a pilot does, is only on this machine, and goes on.)"""
        daemon = self._daemons.pop(name)
        for pid in descendants({daemon.pid}):
            kill(pid)
        daemon.kill()
        daemon.wait(10)

    def start(self, name: str) -> None:
        self._start(name)

    def freeze(self, name: str) -> None:
        """It takes connections and says nothing; so do those that are open."""
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: int) -> None:
        daemon = self._daemons[name]
        for pid in (daemon.pid, *descendants({daemon.pid})):
            send(pid, number)

    def reset(self) -> None:
        """As new, for the next test; hosts that were added stay."""
        for name in self.hosts:
            if name in self._daemons:
                self.thaw(name)
            else:
                self.start(name)
        self.wait_ready()
