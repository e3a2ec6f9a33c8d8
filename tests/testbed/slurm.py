"""A real Slurm cluster on this machine: munge, a controller, and nodes that claim many CPUs.

Any number of clusters stand side by side: each has its own key and socket of munge and its own
ports, and `SLURM_CONF` chooses. As root it runs everybody's jobs, as a plain user his own.

What took us time to find out:
- a controller schedules nothing in its first 3 s; `wait_ready` waits for that;
- commands try for a MessageTimeout to reach a controller that is away, so it is short here;
- time limits are whole minutes (`end_soon` makes one pass earlier), and are looked at every 30 s; a
  GraceTime of preemption is too, so there is none here, and a job has KillWait to end in;
- a job that was requeued is held for 120 s (`release` makes it sooner);
- processes with a blank in their names are not seen, and so get no signal, nor do their children;
- what a job has orphaned (setsid) outlives it here: only cgroups would find it;
- where there is no address but 127.0.0.1 no daemon can bind; `ip netns exec` hides cgroups, and no
  node starts there: `nsenter --net=` does better.
"""

import os
import pwd
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.faults.world import wait_until
from tests.testbed.accounting import Accounting
from tests.testbed.place import System, clean_environment, free_ports, program

CONFIGURATION = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/{gather}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MpiDefault=none
ReturnToService=2
MessageTimeout=6
KillWait={kill_wait_seconds}
MinJobAge=300
JobRequeue=1
EnforcePartLimits=ALL
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,sched_min_interval=500000,bf_interval=5,batch_sched_delay=1
JobCompType=jobcomp/filetxt
JobCompLoc={root}/log/jobcomp.txt
"""
NODE = (
    "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus}"
    " RealMemory={memory} State=UNKNOWN\n"
)
# Jobs of `urgent` and `main` take the place of those in `killable`, which are cancelled, and in
# `requeue`, which start again.
PARTITIONS = """\
PartitionName=main Nodes=ALL Default=YES PriorityTier=5 PreemptMode=OFF DefaultTime=60 MaxTime=7-0
PartitionName=short Nodes=ALL PriorityTier=5 PreemptMode=OFF DefaultTime=1 MaxTime=1
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF DefaultTime=60
PartitionName=killable Nodes=ALL PriorityTier=1 PreemptMode=CANCEL DefaultTime=60
PartitionName=requeue Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE DefaultTime=60
"""
# Every job waits that long in the queue, for the reason BeginTime.
DELAY = """\
function slurm_job_submit(job, partitions, user)
  local start = os.time() + {seconds}
  if job.begin_time == nil or job.begin_time < start then job.begin_time = start end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, user) return slurm.SUCCESS end
return slurm.SUCCESS
"""
SCHEDULES = "SchedulerParameters="  # a new controller logs it when it first schedules
AT_WORK = {"idle", "mixed", "allocated", "completing"}  # states of nodes


class Job(NamedTuple):
    id: str  # of an array's element: 12_3
    name: str
    partition: str
    state: str
    reason: str


class Slurm(System):
    kind = "slurm"
    partition = "main"
    partitions = ("main", "short", "urgent", "killable", "requeue")

    def __init__(
        self,
        name: str = "alpha",
        nodes: int = 1,
        cpus: int = 8,
        memory_mb: int = 16000,
        kill_wait_seconds: int = 5,
        queue_delay_seconds: int = 0,
        accounting: bool = False,
        within: Sequence[str] = (),
    ) -> None:
        super().__init__(within)
        self.name = name
        self.nodes = tuple(f"{name}{number}" for number in range(1, nodes + 1))
        self.cpus = cpus
        self.slots = nodes * cpus
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.configuration = self.place.root / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.configuration)}
        self._memory_mb = memory_mb
        self._kill_wait_seconds = kill_wait_seconds
        self._delay_seconds = queue_delay_seconds
        self._accounting = accounting
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    # -- starting --------------------------------------------------------------------------

    def launch(self) -> None:
        ports = free_ports(3 + len(self.nodes))
        self._configure(ports[0], ports[3:])
        self._start_munge()
        if self._accounting:
            database = Accounting(self.place, self.user, self.within)
            with self.configuration.open("a") as file:
                file.write(database.start(ports[1], ports[2]))
            database.add_cluster(self.name, self.environment)
        self._start_controller()
        for node in self.nodes:
            self.start_node(node)
        for name, port in zip(("slurmctld", *self.nodes), (ports[0], *ports[3:]), strict=True):
            self.place.wait_listening(self._daemons[name], port)

    def _configure(self, port: int, node_ports: Sequence[int]) -> None:
        host = socket.gethostname().partition(".")[0]
        for folder in ("state", "spool", "munge"):
            self.place.folder(folder)
        text = CONFIGURATION.format(
            name=self.name,
            host=host,
            port=port,
            user=self.user,
            root=self.place.root,
            gather="linux" if self._accounting else "none",
            kill_wait_seconds=self._kill_wait_seconds,
        )
        for node, node_port in zip(self.nodes, node_ports, strict=True):
            text += NODE.format(
                node=node, host=host, port=node_port, cpus=self.cpus, memory=self._memory_mb
            )
        if self._delay_seconds:
            text += "JobSubmitPlugins=lua\n"
            self.place.write("job_submit.lua", DELAY.format(seconds=self._delay_seconds))
        self.place.write("slurm.conf", text + PARTITIONS)

    def _start_munge(self) -> None:
        """With a key of its own: clusters do not trust one another."""
        folder = self.place.root / "munge"
        (folder / "key").touch(0o600)
        (folder / "key").write_bytes(secrets.token_bytes(1024))
        self._start(
            "munged",
            "--foreground",
            "--force",
            f"--socket={folder}/socket",
            f"--key-file={folder}/key",
            f"--log-file={self.place.root}/log/munged.log",
            f"--pid-file={folder}/pid",
            f"--seed-file={folder}/seed",
        )
        wait_until((folder / "socket").exists, 10, self.place.logs)

    def _start_controller(self) -> None:
        self._start("slurmctld", "-D", "-f", str(self.configuration))

    def _start(self, name: str, *words: str, called: str = "") -> None:
        command = [*self.within, program(name), *words]
        self._daemons[called or name] = self.place.start(called or name, command, self.environment)

    def is_ready(self) -> bool:
        for name, daemon in self._daemons.items():
            assert daemon.poll() is None, f"{name} has ended\n{self.place.logs()}"
        if SCHEDULES not in (self.place.root / "log" / "slurmctld.log").read_text():
            return False
        states = self.run(
            "sinfo", "-h", "-N", "-p", self.partition, "-o", "%T", check=False
        ).split()
        return len(states) == len(self.nodes) and set(states) <= AT_WORK

    # -- commands --------------------------------------------------------------------------

    def run(self, *words: str, text: str = "", check: bool = True, seconds: float = 60) -> str:
        """A command of this cluster. What it prints."""
        done = subprocess.run(
            [*self.within, *words],
            env={**clean_environment(), **self.environment},
            cwd=self.place.root,
            input=text,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """`script` is of the shell. The job's id."""
        words = ("sbatch", "--parsable", "--output=/dev/null", *options)
        return self.run(*words, text=f"#!/bin/sh\n{script}\n")

    def squeue(self, *options: str) -> list[Job]:
        """All that wait or run, the elements of arrays one by one."""
        text = self.run("squeue", "-h", "-r", "-o", "%i|%j|%P|%T|%r", *options)
        return [Job(*line.split("|")) for line in text.splitlines()]

    def fields(self, job: str) -> dict[str, str]:
        """All that the controller tells of a job, also for five minutes after its end."""
        text = self.run("scontrol", "-o", "show", "job", job)
        return dict(re.findall(r"(\S+?)=(\S*)", text.splitlines()[0]))

    def states(self, job: str) -> list[str]:
        """Of a job or all elements of an array."""
        text = self.run("scontrol", "-o", "show", "job", job)
        return re.findall(r"JobState=(\S*)", text)

    def wait_state(self, job: str, state: str, seconds: float = 30) -> None:
        """All elements of it have come to this state."""
        self.wait(lambda: set(self.states(job)) == {state}, seconds)

    def cancel(self, *jobs: str) -> None:
        self.run("scancel", *jobs)

    def end_soon(self, job: str, seconds: int = 1) -> None:
        """The time limit of a running job comes early: Slurm ends it with TIMEOUT."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + seconds))
        self.run("scontrol", "update", f"JobId={job}", f"EndTime={at}")

    def requeue(self, job: str) -> None:
        """It ends and waits again, for two minutes unless it is released."""
        self.run("scontrol", "requeue", job)

    def release(self, job: str) -> None:
        """In a moment: what starts in the second in which it was requeued fails ("credential
        revoked")."""
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now+3")

    # -- misfortunes -----------------------------------------------------------------------

    def drain(self, partition: str = "") -> None:
        """No job may be queued there; what runs goes on."""
        self.set_partition("DRAIN", partition)

    def hold(self, partition: str = "") -> None:
        """Jobs may be queued there, and none starts."""
        self.set_partition("DOWN", partition)

    def resume(self, partition: str = "") -> None:
        self.set_partition("UP", partition)

    def set_partition(self, state: str, partition: str = "") -> None:
        name = partition or self.partition
        self.run("scontrol", "update", f"PartitionName={name}", f"State={state}")

    def kill_controller(self) -> None:
        """As a crash does: commands fail until it is restarted, jobs go on, and what came in its
        last five seconds or so is forgotten: new jobs are killed, cancelled ones run again."""
        self._kill("slurmctld")

    def stop_controller(self) -> None:
        """The same, but it forgets nothing."""
        self._daemons["slurmctld"].terminate()
        self._daemons.pop("slurmctld").wait(30)

    def restart_controller(self) -> None:
        """It finds what it knew; where it still runs it is killed first."""
        self._kill("slurmctld")
        self._start_controller()
        self.wait_ready()

    def freeze_controller(self) -> None:
        """Commands wait, and then fail."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def thaw_controller(self) -> None:
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    def kill_node(self, node: str) -> None:
        """Its daemon. Jobs on it go on until the controller gives them up."""
        self._kill(node)

    def start_node(self, node: str) -> None:
        self._start("slurmd", "-D", "-f", str(self.configuration), "-N", node, called=node)

    def _kill(self, name: str) -> None:
        if name in self._daemons:
            daemon = self._daemons.pop(name)
            daemon.kill()
            daemon.wait(10)

    def reset(self) -> None:
        """As new, for the next test: everything runs, all is up, the queue is empty."""
        self.set_right()
        self.run("scancel", "--signal=KILL", "--full", f"--user={self.user}", check=False)
        self.run("scancel", f"--user={self.user}", check=False)
        self.wait(lambda: not self.squeue())

    def set_right(self) -> None:
        if "slurmctld" in self._daemons:
            self.thaw_controller()
        else:
            self.restart_controller()
        for node in self.nodes:
            if node not in self._daemons:
                self.start_node(node)
        for partition in self.partitions:
            self.resume(partition)
        for line in self.run("sinfo", "-h", "-N", "-o", "%N %T", "-p", self.partition).splitlines():
            node, state = line.split()
            if state.startswith(("drain", "down")):
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        self.wait_ready()
