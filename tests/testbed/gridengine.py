"""A real Grid Engine (Son of Grid Engine) on this machine: a master, and one host with many slots.

Cells stand side by side: `SGE_ROOT` and two ports choose. **It listens on every interface and
trusts whoever connects**, so here its ports are closed to all but this machine, which takes root;
whoever has no root, or no firewall, must say that he takes the risk (`open_to_all`, or the
environment variable TESTBED_OPEN_TO_ALL).

What took us time to find out:
- a host must have one name both ways, and 127.0.0.1 is localhost: so is the cell, and the real name
  is an alias of it;
- a plain user must be the cell's `admin_user`, or the host is refused;
- one daemon for each host name: many slots, not many hosts;
- `qstat` forgets a job as it ends; `qacct` has it about a second later;
- with `s_rt` set, `h_rt` comes 90 s after it, whatever it says;
- jobs of root need `min_uid` 0.
"""

import os
import pwd
import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.faults.world import kill, wait_until
from tests.testbed.place import System, clean_environment, descendants, free_ports, program

LIBRARY = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
HOST = "localhost"
PORTS = {"sge_qmaster": "SGE_QMASTER_PORT", "sge_execd": "SGE_EXECD_PORT"}

BOOTSTRAP = """\
admin_user {admin}
default_domain none
ignore_fqdn true
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params {root}/spool/db
binary_path {root}/bin
qmaster_spool_dir {root}/spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""
EXECUTION_HOST = """\
hostname {host}
load_scaling NONE
complex_values NONE
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""
# The stock queue of 8.1.9; what is not said here is `NONE` or `INFINITY`.
QUEUE = """\
seq_no 0
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
processors UNDEFINED
qtype BATCH INTERACTIVE
rerun TRUE
tmpdir /tmp
shell /bin/bash
shell_start_mode unix_behavior
notify 00:00:05
initial_state default
"""
NONES = (
    "load_thresholds suspend_thresholds ckpt_list pe_list prolog epilog starter_method"
    " suspend_method resume_method terminate_method owner_list user_lists xuser_lists"
    " subordinate_list complex_values projects xprojects calendar"
)
LIMITS = ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem")
# Of one host, for jobs of several slots: as Grid Engine brings it.
PARALLEL = "smp"
# Jobs in `low.q` are suspended while `all.q` runs something; `short.q` ends its jobs.
QUEUES: dict[str, dict[str, str]] = {
    "low.q": {"seq_no": "20"},
    "all.q": {"subordinate_list": "low.q=1"},
    "short.q": {"seq_no": "10", "h_rt": "00:00:20"},
}
SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
    "load_adjustment_decay_time": "0:0:0",
    "schedd_job_info": "true",
}
WALL = """
table inet {table} {{
  chain coming {{ type filter hook input priority -10; policy accept;
    iif != lo tcp dport {{ {ports} }} drop; }}
}}
"""


class Job(NamedTuple):
    id: str
    task: str  # of an array; "" where there is none
    name: str
    state: str  # as qstat says it: qw, r, Rr, S, Eqw, dr, ...
    queue: str


class GridEngine(System):
    kind = "ge"
    queue = "all.q"
    queues = tuple(QUEUES)

    def __init__(
        self, slots: int = 16, open_to_all: bool = False, within: Sequence[str] = ()
    ) -> None:
        super().__init__(within)
        self.slots = slots
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.environment = {"SGE_ROOT": str(self.place.root), "SGE_CELL": "default"}
        self._open_to_all = open_to_all or bool(os.environ.get("TESTBED_OPEN_TO_ALL"))
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._unheard = False  # the host, since the master was restarted

    # -- starting --------------------------------------------------------------------------

    def launch(self) -> None:
        assert LIBRARY.exists(), "Grid Engine is missing: tools/install-test-packages"
        ports = free_ports(2)
        for name, port in zip(PORTS.values(), ports, strict=True):
            self.environment[name] = str(port)
        self._close_to_others(ports)
        self._make_cell()
        self._start_listening("sge_qmaster")
        wait_until(lambda: self.run("qconf", "-sh", check=False), 30, self.place.logs)
        self._make_queues()
        self._start_listening("sge_execd")

    def _close_to_others(self, ports: Sequence[int]) -> None:
        if self._open_to_all:
            return
        table = "covey_" + re.sub(r"\W", "_", self.place.root.name)
        self.place.undo_later(*self.within, program("nft"), "delete", "table", "inet", table)
        rules = WALL.format(table=table, ports=", ".join(map(str, ports)))
        done = subprocess.run(
            [*self.within, program("nft"), "-f", "-"], input=rules, capture_output=True, text=True
        )
        assert done.returncode == 0, (
            "Grid Engine would listen to everybody, and its ports cannot be closed"
            f" (TESTBED_OPEN_TO_ALL=1 says that this is no harm): {done.stderr}"
        )

    def _make_cell(self) -> None:
        """Debian makes one of its own, which is of no use: its master is nobody."""
        root = self.place.root
        for folder in ("spool/qmaster", "spool/execd", "spool/db", "bin", "utilbin", "lib"):
            self.place.folder(folder)
        (root / "util").symlink_to(SHARED / "util")
        system = self.run(str(SHARED / "util" / "arch"))
        for folder in ("bin", "utilbin", "lib"):
            (root / folder / system).symlink_to(LIBRARY)
        names = {socket.gethostname(), socket.gethostname().partition(".")[0]} - {HOST}
        common = "default/common"
        self.place.write(f"{common}/act_qmaster", f"{HOST}\n")
        self.place.write(f"{common}/host_aliases", f"{' '.join([HOST, *sorted(names)])}\n")
        self.place.write(f"{common}/cluster_name", "testbed\n")
        admin = "none" if os.geteuid() == 0 else self.user
        self.place.write(f"{common}/bootstrap", BOOTSTRAP.format(admin=admin, root=root))
        resources = SHARED / "util" / "resources"
        with_libraries = {"LD_LIBRARY_PATH": str(LIBRARY)}
        for name, *words in (
            ("spoolinit", "berkeleydb", "libspoolb", f"{root}/spool/db", "init"),
            ("spooldefaults", "configuration", str(self._global_configuration())),
            ("spooldefaults", "complexes", str(resources / "centry")),
            ("spooldefaults", "usersets", str(resources / "usersets")),
            ("spooldefaults", "managers", self.user),
        ):
            self.run(str(LIBRARY / name), *words, env=with_libraries)

    def _global_configuration(self) -> Path:
        changes = {
            "execd_spool_dir": f"{self.place.root}/spool/execd",
            "min_uid": "0",
            "min_gid": "0",
            "mailer": "/bin/true",
            "xterm": "/bin/true",
            "shell_start_mode": "unix_behavior",
            "load_report_time": "00:00:02",
            "max_unheard": "00:00:20",
            "loglevel": "log_info",
            "execd_params": "INHERIT_ENV=false,ENABLE_ADDGRP_KILL="
            + ("true" if os.geteuid() == 0 else "false"),
            "reporting_params": "accounting=true reporting=false flush_time=00:00:01"
            " joblog=false sharelog=00:00:00",
        }
        stock = (SHARED / "default-configuration").read_text()
        return self.place.write("made/global", _changed(stock, changes))

    def _make_queues(self) -> None:
        self.run("qconf", "-ah", HOST)
        self.run("qconf", "-as", HOST)
        self._configure("-Ae", "host", EXECUTION_HOST.format(host=HOST))
        self._configure("-Ahgrp", "hosts", f"group_name @allhosts\nhostlist {HOST}\n")
        self.run("qconf", "-Ap", str(SHARED / "util" / "resources" / "pe" / PARALLEL))
        stock = QUEUE + "".join(f"{name} NONE\n" for name in NONES.split())
        stock += "".join(f"{kind}_{name} INFINITY\n" for name in LIMITS for kind in "sh")
        for name, changes in QUEUES.items():
            head = f"qname {name}\nhostlist @allhosts\nslots {self.slots}\n"
            own = {"pe_list": PARALLEL, **changes}
            self._configure("-Aq", name, head + _changed(stock, own))
        scheduler = self.run("qconf", "-ssconf")
        self._configure("-Msconf", "scheduler", _changed(scheduler, SCHEDULER))

    def _configure(self, option: str, name: str, text: str) -> None:
        self.run("qconf", option, str(self.place.write(f"made/{name}", text)))

    def _start_listening(self, name: str) -> None:
        env = {**self.environment, "SGE_ND": "1"}  # it stays in the foreground
        command = [*self.within, str(LIBRARY / name)]
        self._daemons[name] = self.place.start(name, command, env)
        self.place.wait_listening(self._daemons[name], int(self.environment[PORTS[name]]))

    def is_ready(self) -> bool:
        """The queue's line ends with the load when its host is heard, with a state when not."""
        for name, daemon in self._daemons.items():
            assert daemon.poll() is None, f"{name} has ended\n{self.place.logs()}"
        lines = self.run("qstat", "-f", "-q", self.queue, check=False).splitlines()
        return any(line.startswith(self.queue) and len(line.split()) == 5 for line in lines)

    # -- commands --------------------------------------------------------------------------

    def run(
        self,
        *words: str,
        text: str = "",
        check: bool = True,
        seconds: float = 60,
        env: dict[str, str] | None = None,
    ) -> str:
        """A command of this cell. What it prints."""
        done = subprocess.run(
            [*self.within, *words],
            env={**clean_environment(), **self.environment, **(env or {})},
            cwd=self.place.root,
            input=text,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """`script` is of the shell. The job's id, without the range of an array."""
        words = ("qsub", "-terse", "-q", self.queue, "-o", "/dev/null", "-j", "y", *options)
        return self.run(*words, text=f"#!/bin/sh\n{script}\n").partition(".")[0]

    def qstat(self) -> list[Job]:
        """All that wait or run, the elements of arrays one by one."""
        tree = ElementTree.fromstring(self.run("qstat", "-xml", "-u", "*", "-g", "d"))
        return [
            Job(
                one.findtext("JB_job_number", ""),
                one.findtext("tasks", ""),
                one.findtext("JB_name", ""),
                one.findtext("state", ""),
                one.findtext("queue_name") or "",
            )
            for one in tree.iter("job_list")
        ]

    def states(self, job: str) -> list[str]:
        return [one.state for one in self.qstat() if one.id == job]

    def wait_gone(self, job: str, seconds: float = 30) -> None:
        self.wait(lambda: not self.states(job), seconds)

    def qacct(self, job: str) -> list[dict[str, str]]:
        """What is on record of a job, or of each element of an array, a second after its end."""
        found: list[dict[str, str]] = []
        for line in self.run("qacct", "-j", job, check=False).splitlines():
            if line.startswith("==="):
                found.append({})
            elif found:
                name, _, text = line.partition(" ")
                found[-1][name] = text.strip()
        return found

    def cancel(self, *jobs: str) -> None:
        self.run("qdel", *jobs)

    # -- misfortunes -----------------------------------------------------------------------

    def drain(self, queue: str = "") -> None:
        """Nothing starts there any more; what runs goes on."""
        self.run("qmod", "-d", queue or self.queue)

    def resume(self, queue: str = "") -> None:
        self.run("qmod", "-e", queue or self.queue)

    def requeue(self, job: str) -> None:
        """It starts again, under the same id."""
        self.run("qmod", "-rj", job)

    def kill_controller(self) -> None:
        """As a crash does: commands fail until it is restarted, jobs go on."""
        self._kill("sge_qmaster")

    def restart_controller(self) -> None:
        """It finds what it knew, and answers. Its host comes back by itself, half a minute later;
        until then nothing starts, and what ends is not heard of."""
        self._kill("sge_qmaster")
        self._start_listening("sge_qmaster")
        self._unheard = True
        self.wait(lambda: "all.q" in self.run("qstat", "-f", check=False))

    def _restart_host(self) -> None:
        """Its jobs are over: what it finds alive when it starts it looks at once a minute only."""
        jobs = descendants({self._daemons["sge_execd"].pid})
        self._kill("sge_execd")
        for pid in jobs:
            kill(pid)
        self.wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in jobs))
        self._start_listening("sge_execd")
        self._unheard = False

    def _kill(self, name: str) -> None:
        if name in self._daemons:
            daemon = self._daemons.pop(name)
            daemon.kill()
            daemon.wait(10)

    def freeze_controller(self) -> None:
        self._daemons["sge_qmaster"].send_signal(signal.SIGSTOP)

    def thaw_controller(self) -> None:
        self._daemons["sge_qmaster"].send_signal(signal.SIGCONT)

    def reset(self) -> None:
        """As new, for the next test."""
        if "sge_qmaster" in self._daemons:
            self.thaw_controller()
        else:
            self.restart_controller()
        if self._unheard:
            self._restart_host()
        self.run("qmod", "-e", "*", check=False)
        self.run("qdel", "-u", "*", check=False)
        self.wait(lambda: not self.qstat())
        self.wait_ready()


def _changed(text: str, changes: dict[str, str]) -> str:
    """Lines of a name and a value, some with another value. Each change must find its line."""
    for name, value in changes.items():
        text, count = re.subn(rf"(?m)^{name}\s.*$", f"{name} {value}", text)
        assert count == 1, f"{name}: {count} lines"
    return text
