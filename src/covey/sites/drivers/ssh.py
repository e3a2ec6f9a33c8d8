"""Hosts without a batch system, reached by SSH: a job is a detached process on one of them.

Each host is a `QueueSite` of its own, with one connection and one list in each interval, so that a
host that is down slows down no other. Its driver, `Processes`, uses `sh` and `/proc`. Each job has
a folder with its name. The folder can be made only once, so the job cannot be started twice. A file
in it has the id of the process, and the command line of the process names a file in the folder. So
every later server finds the process. A killed pilot has ended when the processes that it forked
have ended, too. A host must be one machine, not a name for several.

Jobs wait here until a host has room: these hosts have no other queue. The site answers while one of
its hosts does. If the host of a job is not known, all hosts are asked. The job is gone when every
host has said that it does not have it, or has failed for long: else one dead host would keep all
these jobs on record. If the dead host has the job after all, the job is not on record when the host
answers again, and is cancelled.
"""

import math
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from covey.core.errors import BadConfig
from covey.core.record.actions import Note
from covey.core.record.events import (
    JobEnded,
    JobRefused,
    JobSubmitted,
    JobVanished,
    SiteAnswered,
    SiteFailed,
)
from covey.core.record.model import JobId, JobRecord, SiteFacts, SiteSpec
from covey.ports import EngineEvent
from covey.sites.command_driver import Batch, CommandDriver, directory_of, open_queue_site
from covey.sites.commands import Command, Output
from covey.sites.driver import OpenSite, Seen, SiteContext, Stand
from covey.sites.errors import Refused, Unclear
from covey.sites.options import argument_options
from covey.sites.queue_site import QueueSite
from covey.sites.script import FOLDER
from covey.sites.shell import PLACE

# Whether the process of a job lives. Another process may get its id later, so the time of its start
# is compared, too (in the kernel's ticks). The command line does not help: it is empty for a moment
# while a process becomes another program.
LIVES = """
lives() {
  read -r pid began 2>/dev/null <"$1/process" || return 1
  read -r line 2>/dev/null <"/proc/$pid/stat" || return 1
  set -- ${line##*) }
  test "$1" != Z && test "${20}" = "$began"
}
"""
# $1 the host's folder, $2 the job's name, $3 the size of its script. The file `process` appears
# when the process is there. The script holds the job's secret, and removes itself when it runs.
START = (
    PLACE
    + f"""
job=$d/jobs/$2; before=$(umask); umask 077
mkdir -p "$d/jobs" || exit 1
mkdir "$job" 2>/dev/null || {{ test -d "$job" && echo "started $2" && exit 0; exit 1; }}
cat >"$job/script.new" && test "$(wc -c <"$job/script.new")" -eq "$3" ||
  {{ rm -rf "$job"; echo "$job cannot be written" >&2; exit 1; }}
umask "$before"
{FOLDER}=$job setsid /bin/sh -c '
  read -r line </proc/$$/stat
  script=$1
  set -- ${{line##*) }}
  echo "$$ ${{20}}" >"${{script%/script}}/process" && mv "$script.new" "$script" &&
    exec /bin/sh "$script"
' sh "$job/script" </dev/null >"$job/log" 2>&1 &
echo "started $2"
"""
)
# $1 the host's folder, $2 the prefix of the names. Processes that a pilot has forked have its
# command line, so they are found even when the pilot has ended. Secrets of ended jobs are removed.
LIST = (
    PLACE
    + LIVES
    + """
gone=" "
for job in "$d/jobs/$2"*; do
  test -d "$job" || continue
  name=${job##*/}
  if lives "$job"; then echo "running $name"
  elif test -s "$job/process"; then gone="$gone$name "
  elif test -z "$(find "$job" -prune -mmin +10)"; then echo "starting $name"
  else rm -f "$job/script.new"; echo "ended $name it was never started"; fi
done
for file in $(grep -lsF -e "$d/jobs/$2" /proc/[0-9]*/cmdline); do
  name=$(tr '\\0' '\\n' <"$file" 2>/dev/null |
    sed -n -e 's|^/.*/jobs/\\(covey-[^/]*\\)/script$|\\1|p' \\
      -e 's|^/.*/jobs/\\(covey-[^/]*\\)/start\\.json$|\\1|p' | head -n 1)
  test -n "$name" || continue
  echo "running $name"
  case $gone in *" $name "*) gone="${gone%% $name *} ${gone#* $name }";; esac
done
for name in $gone; do
  for file in script script.new start.json; do rm -f "$d/jobs/$name/$file"; done
  echo "ended $name $(tail -n 1 "$d/jobs/$name/log" 2>/dev/null |
    tr -d '\\000-\\037' | cut -c 1-300)"
  test -z "$(find "$d/jobs/$name/log" -mmin +60 2>/dev/null)" || rm -rf "$d/jobs/$name"
done
echo end
"""
)
# $1 the host's folder, then names. Processes that a pilot has forked end with it. A script that has
# not become a pilot yet waits for its commands, so its whole process group gets the signal.
CANCEL = (
    PLACE
    + LIVES
    + """
shift
for name; do
  lives "$d/jobs/$name" || continue
  case $(tr '\\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") in
  */script" ") kill -s TERM -- "-$pid";;
  *) kill -s TERM "$pid";;
  esac
done
true
"""
)


class SshOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Hosts, as in 'ssh NAME'; 'name:8' has 8 slots, others the site's 'slots'."
        ),
    ] = ()


class Ssh:
    name = "ssh"
    options: type[Struct] = SshOptions

    def facts(self, spec: SiteSpec) -> SiteFacts:
        log = f"{directory_of(spec)}/hosts/*/jobs/covey-*-{{job}}/log"
        return SiteFacts(accounts=tuple(hosts_of(spec)), log=log)

    def open(self, spec: SiteSpec, context: SiteContext) -> OpenSite:
        return SshSite(spec, context)


class Processes(CommandDriver):
    """The processes of one host. Hosts may share a home directory: each has its own folder in
    it."""

    def __init__(self, host: str) -> None:
        self._folder = "hosts/" + re.sub(r"[^\w.@-]", "_", host)

    def _place(self, spec: SiteSpec) -> str:
        return f"{directory_of(spec)}/{self._folder}"

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        script = batch.script.encode()
        return _sh(START, script, self._place(spec), batch.title, str(len(script)))

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        if output.status:
            raise Refused(output.words)
        if output.stdout.strip() != f"started {batch.title}":
            raise Unclear(output.words)
        return (batch.title,)

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        return _sh(LIST, b"", self._place(spec), prefix)

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        lines = output.stdout.split("\n")
        if output.status or lines[-2:] != ["end", ""]:
            raise Unclear(f"the list of processes is incomplete: {output.words}")
        found: dict[str, Seen] = {}
        for line in lines[:-2]:
            what, _, rest = line.partition(" ")
            name, _, reason = rest.partition(" ")
            stand = _STANDS.get(what)
            if stand is None or not name.startswith(prefix):
                raise Unclear(f"the list of processes has an unexpected line: {line}")
            found.setdefault(name, Seen(name, name, stand, reason or "its process is gone"))
        return list(found.values())

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        return _sh(CANCEL, b"", self._place(spec), *handles)


_STANDS = {"running": Stand.RUNNING, "starting": Stand.UNKNOWN, "ended": Stand.ENDED}


def _sh(text: str, stdin: bytes, *words: str) -> Command:
    return Command(("/bin/sh", "-c", text, "sh", *words), stdin)


def hosts_of(spec: SiteSpec) -> dict[str, int]:
    """The slots of each host. Raises BadConfig."""
    found: dict[str, int] = {}
    for text in argument_options(spec, SshOptions).hosts:
        name, _, slots = text.rpartition(":")
        if not name or not (slots.isascii() and slots.isdecimal()):
            name, slots = text, str(spec.slots)
        if name.startswith("-") or not name or int(slots) < 1:
            rule = "write NAME or NAME:SLOTS; it must not begin with '-'"
            raise BadConfig(f"site {spec.name}: {text!r} is not a host: {rule}")
        if name in found:
            raise BadConfig(f"site {spec.name}: options.hosts names host {name!r} twice")
        found[name] = int(slots)
    if not found:
        raise BadConfig(f"site {spec.name}: options.hosts is empty: name at least one host")
    return found


class SshSite(OpenSite):
    """All hosts of a site. Orders come from the engine's thread, events from the hosts' threads."""

    def __init__(self, spec: SiteSpec, context: SiteContext) -> None:
        self.spec = spec
        self._context = context
        self._lock = threading.RLock()
        self._slots = hosts_of(spec)
        self._hosts: dict[str, QueueSite] = {}
        self._failed: dict[str, str] = {}
        self._failed_at: dict[str, float] = {}
        self._heard = False
        self._waiting: deque[JobRecord] = deque()
        self._jobs: dict[JobId, JobRecord] = {}  # started, or perhaps started
        self._at: dict[JobId, str] = {}  # their hosts
        self._used: Counter[str] = Counter()  # slots, by host
        self._asked: dict[JobId, set[str]] = {}  # hosts that may have it
        with self._lock:
            self._hosts.update((name, self._open(name)) for name in self._slots)

    def _open(self, host: str) -> QueueSite:
        context = self._context._replace(post=lambda event: self._hear(host, event))
        return open_queue_site(Processes(host), self.spec, context, host)

    # -- orders ----------------------------------------------------------------------------

    def submit(self, jobs: Sequence[JobRecord]) -> None:
        with self._lock:
            down = next(iter(self._failed.values()), "")
            for job in jobs:
                if len(self._failed) == len(self._hosts):
                    self._context.post(JobRefused(job.id, down))
                elif job.slots > max(self._slots.values()):
                    words = f"no host of {self.spec.name} has {job.slots} slots"
                    self._context.post(JobRefused(job.id, words))
                else:
                    self._waiting.append(job)
                    self._context.post(JobSubmitted(job.id))
            self._fill()

    def watch(self, jobs: Sequence[JobRecord]) -> None:
        with self._lock:
            waiting = {job.id for job in self._waiting}
            self._jobs = {job.id: job for job in jobs if job.id not in waiting}
            self._at, self._asked = {}, {}
            self._used.clear()
            for job in list(self._jobs.values()):
                host = job.handle.rpartition(":")[0]
                if host in self._hosts:
                    self._put(job, host)
                elif host:
                    self._gone(job.id, f"host {host} does not belong to {self.spec.name} any more")
                else:
                    self._asked[job.id] = set(self._hosts)
            for name, host_site in self._hosts.items():
                host_site.watch(self._jobs_of(name))

    def cancel(self, jobs: Sequence[JobRecord]) -> None:
        with self._lock:
            ids = {job.id for job in jobs}
            for job in [job for job in self._waiting if job.id in ids]:
                self._waiting.remove(job)
                self._context.post(JobEnded(job.id, "cancelled before it was started"))
            for host_site in self._hosts.values():  # one that vanished may be at any of them
                host_site.cancel(jobs)

    def change(self, spec: SiteSpec) -> bool:
        try:
            slots = hosts_of(spec)
        except BadConfig:
            return False
        with self._lock:
            self.spec, self._slots = spec, slots
            for name in [name for name in self._hosts if name not in slots]:
                self._hosts.pop(name).close()
                self._failed.pop(name, None)
                self._failed_at.pop(name, None)
                for job in self._jobs_of(name):
                    self._lost_sight(
                        name, job.id, f"host {name} does not belong to {spec.name} any more"
                    )
            for name in slots:
                if name in self._hosts:
                    self._hosts[name].change(spec)
                else:
                    self._hosts[name] = self._open(name)
                    self._hosts[name].watch(())
            self._fill()
        return True

    def jobs(self) -> tuple[JobRecord, ...]:
        with self._lock:
            return (*self._jobs.values(), *self._waiting)

    def close(self, seconds: float = 0.0) -> None:
        until = time.monotonic() + seconds
        for host_site in self._hosts.values():
            host_site.close(max(0.0, until - time.monotonic()))

    # -- which host ------------------------------------------------------------------------

    def _jobs_of(self, host: str) -> list[JobRecord]:
        """Jobs that are on the host, or may be, with the handles that the host's own site uses."""
        found = []
        for id_, job in self._jobs.items():
            if self._at.get(id_) == host or host in self._asked.get(id_, ()):
                handle = job.handle.rpartition(":")[2]
                found.append(msgspec.structs.replace(job, handle=handle))
        return found

    def _free(self, host: str) -> int:
        return self._slots[host] - self._used[host]

    def _fill(self) -> None:
        """Start waiting jobs, each on the host with the most free slots."""
        able = [name for name in self._hosts if name not in self._failed]
        while self._waiting and able:
            job = self._waiting[0]
            host = max(able, key=self._free)
            if self._free(host) < job.slots:
                return
            self._waiting.popleft()
            self._put(job, host)
            self._hosts[host].submit([job])

    def _put(self, job: JobRecord, host: str) -> None:
        self._forget(job.id)
        self._jobs[job.id], self._at[job.id] = job, host
        self._used[host] += job.slots

    def _gone(self, job: JobId, reason: str) -> None:
        self._forget(job)
        self._context.post(JobVanished(job, reason))

    def _forget(self, job: JobId) -> JobRecord | None:
        self._asked.pop(job, None)
        record, host = self._jobs.pop(job, None), self._at.pop(job, None)
        if record is not None and host is not None:
            self._used[host] -= record.slots
        return record

    # -- events of the hosts ---------------------------------------------------------------

    def _hear(self, host: str, event: EngineEvent) -> None:
        with self._lock:
            if host not in self._hosts:
                return
            match event:
                case SiteFailed(_, reason):
                    self._host_failed(host, reason)
                case SiteAnswered():
                    self._host_answered(host)
                case JobSubmitted(job, handle):
                    self._settle(host, job)
                    self._context.post(JobSubmitted(job, f"{host}:{handle}"))
                case JobVanished(job, reason):
                    self._lost_sight(host, job, reason)
                case JobRefused(job, reason):
                    self._refused(host, job, reason)
                case JobEnded(job):
                    self._settle(host, job)
                    self._forget(job)
                    self._context.post(event)
                    self._fill()
                case _:
                    self._context.post(event)

    def _host_failed(self, host: str, reason: str) -> None:
        known, self._failed[host] = self._failed.get(host), reason
        self._failed_at.setdefault(host, self._context.now())
        for job in list(self._asked):
            self._give_up_on(job, f"{host}: {reason}")
        if len(self._failed) < len(self._hosts):
            if known != reason:
                words = f"{host} of {self.spec.name}: {reason}"
                self._context.note(Note("host does not answer", detail=words))
            return
        self._heard = False
        self._context.post(SiteFailed(self.spec.name, f"{host}: {reason}"))
        while self._waiting:
            self._context.post(JobRefused(self._waiting.popleft().id, reason))

    def _host_answered(self, host: str) -> None:
        self._failed.pop(host, None)
        self._failed_at.pop(host, None)
        if not self._heard:
            self._heard = True
            self._context.post(SiteAnswered(self.spec.name))
        self._fill()

    def _settle(self, host: str, job: JobId) -> None:
        """The job is on this host, so no other host is asked for it any more."""
        for other in self._asked.pop(job, set()) - {host}:
            self._hosts[other].forget([job])
        if job in self._jobs:
            self._put(self._jobs[job], host)

    def _lost_sight(self, host: str, job: JobId, reason: str) -> None:
        """This host does not have the job. The job is gone if no other host may have it."""
        asked = self._asked.get(job, set())
        asked.discard(host)
        if not asked:
            self._gone(job, reason)
        else:
            self._give_up_on(job, reason)

    def _give_up_on(self, job: JobId, reason: str) -> None:
        """The job is gone if only hosts that failed long ago may have it."""
        asked, long_ago = self._asked[job], self._context.now() - self._context.grace_seconds
        if len(asked) < len(self._hosts) and all(
            self._failed_at.get(host, math.inf) <= long_ago for host in asked
        ):
            for host in asked:
                self._hosts[host].forget([job])
            self._gone(job, reason)

    def _refused(self, host: str, job: JobId, reason: str) -> None:
        """If the host does not answer, another host may take the job."""
        record = self._forget(job)
        able = len(self._failed) < len(self._hosts)
        if host in self._failed and able and record is not None:
            self._waiting.appendleft(record)
            self._fill()
        else:
            self._context.post(JobRefused(job, reason))
