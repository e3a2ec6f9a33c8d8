"""A server on one network and pilots on others, with TLS of our own, as people would have it."""

import hashlib
import json
import secrets
import signal
import subprocess
from pathlib import Path

from covey.core.record.model import Blob, Placed
from tests.faults.world import World, kill, wait_until
from tests.network.lab import PORT, Far, Lab
from tests.network.serving import bound, serve_with

NAME = "covey.test"  # of the server
# Terms short enough for a test; the lease outlives every outage that is not meant to lose a pilot.
SETTINGS = {
    "COVEY_SERVE_LISTEN": "0.0.0.0",
    "COVEY_SERVE_PORT": str(PORT),
    "COVEY_SERVE_NAMES": NAME,
    "COVEY_SERVE_POLL_SECONDS": "2",
}

PATCHED = """
import sys
sys.path.insert(0, {file!r})
{patch}
from covey.pilot.__main__ import main
sys.exit(main())
"""


class Remote:
    def __init__(self, world: World, lab: Lab | None = None) -> None:
        self.world = world
        self._lab = lab
        self._settings: dict[str, str] = {}

    @property
    def lab(self) -> Lab:
        assert self._lab is not None
        return self._lab

    def serve(self, patch: str = "", **settings: str) -> "subprocess.Popen[bytes]":
        """`lease_seconds="5"`: settings of the server. Those of the last time stay. `patch`:
        Python that it runs first."""
        given = {f"COVEY_SERVE_{name.upper()}": text for name, text in settings.items()}
        self._settings = {**SETTINGS, **self._settings, **given}
        words = ("--pilots", "0")
        found: subprocess.Popen[bytes] = serve_with(self.world, self._settings, *words, patch=patch)
        return found

    def pilot(
        self,
        far: Far,
        *options: str,
        python: str = "/usr/bin/python3",
        server: str = "",
        files: dict[str, Path] | None = None,
        bare: bool = False,
        patch: str = "",
    ) -> "subprocess.Popen[bytes]":
        """A pilot there. `files`: what it finds at these paths. `bare`: without any environment,
        and without what else may be installed here. `patch`: Python that it runs first."""
        root = self.world.root
        mark = secrets.token_hex(4)
        ca, secret = root / "ca.pem", root / f"secret-{mark}"
        ca.write_text(json.loads((self.world.directory / "server.json").read_text())["ca"])
        secret.write_text(self.world.pilot_secret())
        address = f"https://{server or far.near}:{PORT}"
        file = str(self.world.directory / "pilot.pyz")
        code = PATCHED.format(file=file, patch=patch)
        words = [python, *(["-I"] if bare else []), *(["-c", code] if patch else [file])]
        words += ["--server", address, "--ca", str(ca), "--secret-file", str(secret)]
        words += [
            "--directory",
            str(root / f"pilot-{mark}"),
            "--cache",
            str(root / f"cache-{mark}"),
        ]
        if bare:
            words = ["env", "-i", "PATH=/usr/bin:/bin", *words]
        words = far.within(*bound(files), *words, *options)
        return self.world.start(words, start_new_session=True)

    def wait_pilots(self, count: int, seconds: float = 30) -> None:
        wait_until(lambda: self.world.server().pilots == count, seconds, self.world.log_tail)

    def store(self, data: bytes) -> Blob:
        """A file that the server holds."""
        client = self.world.client()
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        try:
            for start in range(0, len(data), 1 << 20):
                client.put_piece(blob.digest, start, len(data), data[start : start + (1 << 20)])
        finally:
            client.close()
        return blob

    def placed(self, path: str, data: bytes) -> Placed:
        return Placed(path=path, blob=self.store(data))

    def returned(self, bag: int) -> dict[tuple[int, str], bytes]:
        """What the tasks of a bag have returned, by task and path."""
        client = self.world.client()
        try:
            return {
                (one.task, one.path): one.data or b"".join(client.read_file(one.digest))
                for one in client.files(bag)
            }
        finally:
            client.close()

    def kill_pilot(self, pilot: "subprocess.Popen[bytes]") -> None:
        """-9; its slots and tasks see to themselves."""
        pilot.send_signal(signal.SIGKILL)
        pilot.wait(30)

    def kill_all(self, far: Far) -> None:
        """As when the machine loses power."""
        for pid in far.processes():
            kill(pid)
