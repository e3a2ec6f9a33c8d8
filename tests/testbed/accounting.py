"""What `sacct` needs: slurmdbd, and the MariaDB that it keeps its tables in."""

import secrets
import socket
import subprocess
from collections.abc import Mapping, Sequence

from tests.faults.world import wait_until
from tests.testbed.place import Place, clean_environment, program

CONFIGURATION = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
CommunicationParameters=NoInAddrAny
SlurmUser={user}
LogFile={root}/log/slurmdbd.log
PidFile={root}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm
"""
# AuthInfo does not reach this connection: the socket of munge is its password.
OF_CLUSTER = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={root}/munge/socket
"""
TABLES = """
create database slurm;
create user slurm@'127.0.0.1' identified by '{password}';
create user slurm@localhost identified by '{password}';
grant all on slurm.* to slurm@'127.0.0.1';
grant all on slurm.* to slurm@localhost;
"""
SMALL = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=16M",
    "--innodb-lock-wait-timeout=900",
    "--innodb-flush-log-at-trx-commit=0",
)


class Accounting:
    def __init__(self, place: Place, user: str, within: Sequence[str]) -> None:
        self._place = place
        self._user = user
        self._within = tuple(within)
        self._socket = place.root / "mariadb.socket"

    def start(self, port: int, storage_port: int) -> str:
        """What slurm.conf must say."""
        password = secrets.token_hex(16)
        self._start_database(storage_port)
        self._run("mariadb", *self._login(), text=TABLES.format(password=password))
        text = CONFIGURATION.format(
            root=self._place.root,
            port=port,
            host=socket.gethostname().partition(".")[0],
            user=self._user,
            storage_port=storage_port,
            password=password,
        )
        self._place.write("slurmdbd.conf", text, 0o600)
        configuration = {"SLURM_CONF": str(self._place.root / "slurm.conf")}
        command = [*self._within, program("slurmdbd"), "-D"]
        daemon = self._place.start("slurmdbd", command, configuration)
        self._place.wait_listening(daemon, port)
        return OF_CLUSTER.format(root=self._place.root, port=port)

    def _start_database(self, port: int) -> None:
        data = self._place.folder("mariadb")
        self._run(
            "mariadb-install-db",
            "--no-defaults",
            f"--user={self._user}",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )
        command = [
            *self._within,
            program("mariadbd"),
            "--no-defaults",
            f"--user={self._user}",
            f"--datadir={data}",
            f"--socket={self._socket}",
            f"--pid-file={self._place.root}/mariadb.pid",
            "--bind-address=127.0.0.1",
            f"--port={port}",
            *SMALL,
        ]
        self._place.wait_listening(self._place.start("mariadb", command), port)

    def _login(self) -> tuple[str, ...]:
        return ("--no-defaults", "--user=root", f"--socket={self._socket}")

    def add_cluster(self, name: str, env: Mapping[str, str]) -> None:
        """It is known before its controller starts."""

        def added() -> bool:
            try:
                self._run("sacctmgr", "--immediate", "add", "cluster", name, env=env)
            except subprocess.CalledProcessError:
                return False  # slurmdbd makes its tables
            return True

        wait_until(added, 30, self._place.logs)

    def _run(self, name: str, *words: str, text: str = "", env: Mapping[str, str] = {}) -> None:
        with (self._place.root / "log" / f"{name}.out").open("ab") as log:
            subprocess.run(
                [*self._within, program(name), *words],
                env={**clean_environment(), **env},
                cwd=self._place.root,
                input=text.encode(),
                stdout=log,
                stderr=log,
                timeout=60,
                check=True,
            )
