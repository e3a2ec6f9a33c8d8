"""Servers, pilots and commands as real processes, which meet over TLS as strangers do: they know
an address, an authority and a secret, and nothing else."""

import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

from covey.client.embedded import Record, read_record
from tests.faults.world import World, wait_until

# `/etc/hosts` and `/etc/resolv.conf` of one process: files of the test take their place.
BIND = 'while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done; shift; exec "$@"'
TASK = 'sleep 0.05; echo "$COVEY_TASK"'


def record_of(world: World) -> Record:
    found = read_record(world.directory)
    assert found is not None
    return found


def port_of(world: World) -> int:
    return int(json.loads((world.directory / "server.json").read_text())["port"])


def serve(world: World, *options: str, patch: str = "", **settings: str) -> Any:
    """`patch`: Python that the server runs first; `settings` of its section [serve]."""
    env = {f"COVEY_SERVE_{name.upper()}": text for name, text in settings.items()}
    return serve_with(world, env, *options, patch=patch)


def serve_with(world: World, env: dict[str, str], *options: str, patch: str = "") -> Any:
    """The same, with what its environment shall have."""
    code = f"{patch}\nfrom covey.cli.main import main\nmain()"
    command = [sys.executable, "-P", "-c", code, "serve", "--dir", str(world.directory), *options]
    process = world.start(command, env=env, start_new_session=True)
    world.wait_ready(process)
    return process


def authority_file(world: World, text: str = "") -> Path:
    path = world.root / f"ca-{len(list(world.root.glob('ca-*')))}.pem"
    path.write_text(text or record_of(world).ca)
    return path


def token_file(world: World) -> Path:
    path = world.root / "token"
    path.write_text(record_of(world).token)
    path.chmod(0o600)
    return path


def covey(
    world: World, address: str, ca: Path | None, *words: str, **env: str
) -> "subprocess.CompletedProcess[str]":
    """A command from far away: it does not know the server's directory."""
    command = [*words[:1], "--server", address, "--token-file", str(token_file(world))]
    if ca is not None:
        command += ["--ca", str(ca)]
    return world.covey(*command, *words[1:], **env)


def pilot(
    world: World, address: str, ca: Path | None, *options: str, **env: str
) -> "subprocess.Popen[bytes]":
    return pilot_with(world, address, ca, *options, env=env)


def pilot_with(
    world: World,
    address: str,
    ca: Path | None,
    *options: str,
    env: dict[str, str] | None = None,
    python: str = sys.executable,
    files: dict[str, Path] | None = None,
) -> "subprocess.Popen[bytes]":
    """`files`: what it finds at these paths."""
    secret = world.root / f"secret-{len(list(world.root.glob('secret-*')))}"
    secret.write_text(world.pilot_secret())
    command = [*bound(files), python, str(world.directory / "pilot.pyz"), "--server", address]
    command += ["--secret-file", str(secret), "--slots", "2"]
    command += ["--cache", str(world.root / "cache")]
    command += ["--ca", str(ca)] if ca is not None else []
    return world.start([*command, *options], env=env or {}, start_new_session=True)


def bound(files: dict[str, Path] | None) -> list[str]:
    """What goes before a command for which these files take the place of the system's."""
    if not files:
        return []
    places = [str(path) for pair in files.items() for path in reversed(pair)]
    return ["unshare", "--mount", "sh", "-ec", BIND, "sh", *places, "--"]


def living(world: World) -> list[int]:
    """The pilots that the server hears of."""
    client = world.client()
    try:
        return [one.id for one in client.pilots() if one.status == "active"]
    finally:
        client.close()


def wait_enrolled(world: World, count: int = 1) -> None:
    wait_until(lambda: len(living(world)) >= count, 60, world.log_tail)


def shown_certificate(world: World, host: str = "127.0.0.1") -> x509.Certificate:
    """What a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, port_of(world)), 10) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        raw = wrapped.getpeercert(binary_form=True)
    assert raw is not None
    return x509.load_der_x509_certificate(raw)


def connections_to(port: int, pid: int) -> set[int]:
    """The sockets (inodes) of a process that are connected to a port."""
    return _connections(port, pid, 2)


def connections_at(port: int, pid: int) -> set[int]:
    """Those that others have opened to a port of its own."""
    return _connections(port, pid, 1)


def _connections(port: int, pid: int, field: int) -> set[int]:
    own = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(handle.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            own.add(int(target[8:-1]))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[field].rpartition(":")[2], 16) == port and fields[3] == "01":
                found.add(int(fields[9]))
    return own & found


def host_of(address: str) -> str:
    return urlsplit(address).hostname or ""
