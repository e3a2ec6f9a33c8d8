"""The tags that a pilot publishes about its host: GWpilot's Table 2, and what tasks add.

    identification   pilot_hash_name, lrms_name (the site)
    generic          arch, os_name, os_version, cpu_model, cpu_mhz, size_mem_mb, size_disk_mb,
                     cpu_free (% of all processors together), free_mem_mb, free_disk_mb;
                     also cores, gpus (their ids) and python, which the paper does not have
    scratch          scratch_dir, scratch_free (MB), sw_dir (where setups of bags live)
    virtual queue    queue_nodecount, queue_freenodecount (slots), queue_access (the pilot's user),
                     queue_maxtime, queue_maxcputime (seconds left, if known)
    tasks            pilot_task_mem_mb (resident), pilot_task_mem_used, pilot_task_cpu_used (%)
    network          pilot_lag (seconds), pilot_xfer_bw (KB/s to and from the server)
    caching          OWNER:last_executable, OWNER:last_input_files, OWNER:last_output_files (names
                     and digests): of the last task, for its owner
    by tasks         OWNER:name, whatever a task wrote to $COVEY_TAGS; an empty value removes it;
                     tags_dropped, if a task wrote too much: which tags are missing or were cut

A tag that begins with an owner is for that owner only: the server shows it to nobody else, and no
other owner's policies see it.

Storage elements (default_se, dflt_se_free, pilot_xfer_se_bw) and checkpoints (ckpt_file_task) have
no counterpart here yet. The rules: tags of tasks outlive the tasks and this pilot, because they are
kept in the host's cache directory. Values that change all the time are measured every
PERIOD_SECONDS, and published only if they have changed noticeably.
"""

import json
import os
import re
import resource
import sys
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from covey.pilot.files.cache_leases import lock
from covey.pilot.files.task_reports import DROPPED, TAG_BYTES
from covey.pilot.host import host_facts
from covey.pilot.protocol.message_limits import (
    allowed_tags,
    clean,
    dropped_tags_message,
    is_unicode,
)
from covey.pilot.protocol.messages import (
    LONGEST_TAG,
    MOST_TAG_CHARACTERS,
    MOST_TAGS,
    Input,
    OutputFile,
)

PERIOD_SECONDS = 30.0
PACE_SECONDS = 1.0  # least time between publications of tasks' tags
NOTICEABLE = 0.1  # relative change of a number
LONGEST = LONGEST_TAG
# The rest is left for tags of tasks.
OWN_TAGS, OWN_CHARACTERS = 50, 8_000
MOST_TASK_TAGS = MOST_TAGS - OWN_TAGS
MOST_TASK_CHARACTERS = MOST_TAG_CHARACTERS - OWN_CHARACTERS
DROPPED_TAG = "tags_dropped"  # says which tags are missing, and why

_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")


class PilotFacts(NamedTuple):
    """Facts that do not change while a pilot lives."""

    pilot: str
    site: str
    slots: int
    memory_mb: int
    gpus: Sequence[str]
    directory: str
    cache: str
    until: float  # seconds since 1970 at which our site job ends; 0: not known


class Now(NamedTuple):
    """Facts that change."""

    free_slots: int
    tasks: Sequence[int]  # process ids of running tasks
    lag_seconds: float
    bytes_per_second: float


class HostTags:
    def __init__(self, fixed: PilotFacts, path: str) -> None:
        self._fixed = fixed
        self._path = path
        self._tasks = _load(path)
        self._last: Dict[str, str] = {}
        self._last_shown: Dict[str, str] = {}
        self._published: Dict[str, str] = {}
        self._look_at = 0.0
        self._load = (0.0, host_facts.HostLoad())
        self._written: Dict[str, Optional[str]] = {}  # tags of tasks since the last publication
        self._published_at = 0.0
        self._static = _static(fixed)
        self._dropped = ""  # a message about tags of tasks that are missing

    def at_enrolment(self) -> Dict[str, str]:
        self._published = dict(self._static)
        self._published.update(self._tasks)
        self._published = self._allowed(self._published)
        return dict(self._published)

    def without_those_of_tasks(self) -> Dict[str, str]:
        """For a server that has refused the tags of tasks: they are no longer published."""
        self._tasks = {}
        self._dropped = "the server refused the tags that tasks wrote on this host"
        return {DROPPED_TAG: self._dropped}

    def wrote(self, owner: str, text: str) -> str:
        """A task of this owner wrote this to its pipe. Lines without a tag are ignored. Returns a
        message about tags that were dropped or cut, for people who look at the task."""
        change: Dict[str, Optional[str]] = {}
        too_much: List[str] = []
        for line in text.splitlines():
            match = _LINE.fullmatch(line.strip())
            if match is None:
                if line == DROPPED:
                    too_much.append("everything after the first %d bytes" % TAG_BYTES)
                continue
            name, value = "%s:%s" % (owner, match.group(1)), match.group(2)
            if len(name) > LONGEST or not is_unicode(name):
                too_much.append(name)
                continue
            change[name] = clean(value, LONGEST)
            if change[name] != value:
                too_much.append(name)
        if change:
            self._tasks, dropped = _merged(self._tasks, change)
            too_much += dropped
            self._written.update(change)
        if too_much:
            self._dropped = dropped_tags_message(too_much, naming=False)
        return dropped_tags_message(too_much)

    def ran(
        self,
        owner: str,
        argv: Sequence[str],
        inputs: Sequence[Input],
        files: Sequence[OutputFile],
    ) -> None:
        """The last task was of this owner, and used and made these files."""
        executable = argv[0] if argv else ""
        digests = {item.path: item.digest for item in inputs}
        executable = _named(executable, digests.get(os.path.normpath(executable), ""))
        last = {
            "last_executable": executable[:LONGEST],
            "last_input_files": _listed((item.path, item.digest) for item in inputs),
            "last_output_files": _listed((file.path, file.digest) for file in files),
        }
        self._last = {"%s:%s" % (owner, name): value for name, value in last.items() if owner}

    def due(self, now: float) -> bool:
        return now >= self._look_at or (
            bool(self._written) and now >= self._published_at + PACE_SECONDS
        )

    def changed(self, now: float, state: Now) -> Optional[Dict[str, str]]:
        """All tags, if some have changed; else None. Call it when it is `due`."""
        tags = dict(self._static)
        if now >= self._look_at:
            self._look_at = now + PERIOD_SECONDS
            tags.update(self._changing(now, state))
            self._last_shown = self._last
        else:
            tags.update(
                {
                    name: value
                    for name, value in self._published.items()
                    if ":" not in name and name not in tags and name != DROPPED_TAG
                }
            )
        self.close()
        self._published_at = now
        tags.update(self._last_shown)
        tags.update(self._tasks)
        tags = self._allowed(tags)
        if not _differ(tags, self._published):
            return None
        self._published = tags
        return dict(tags)

    def _allowed(self, tags: Dict[str, str]) -> Dict[str, str]:
        """The tags that the server accepts, with a message about those that are missing."""
        if self._dropped:
            tags = dict(tags, **{DROPPED_TAG: clean(self._dropped, LONGEST)})
        allowed, missing = allowed_tags(tags)
        if missing and DROPPED_TAG not in allowed:
            words = dropped_tags_message(missing, naming=False)
            allowed, _ = allowed_tags(dict(allowed, **{DROPPED_TAG: words}))
        return allowed

    def close(self) -> None:
        """Keep the tags of tasks for later pilots of this host."""
        if self._written:
            _save(self._path, self._written)
            self._written = {}

    def _changing(self, now: float, state: Now) -> Dict[str, str]:
        fixed = self._fixed
        _, free_mb = host_facts.disk_mb(fixed.directory)
        tags = {
            "queue_freenodecount": str(state.free_slots),
            "free_mem_mb": str(host_facts.free_memory_mb()),
            "free_disk_mb": str(free_mb),
            "scratch_free": str(free_mb),
        }
        idle = host_facts.idle_percent()
        if idle is not None:
            tags["cpu_free"] = str(idle)
        tags.update(self._of_tasks(now, state.tasks))
        if state.lag_seconds:
            tags["pilot_lag"] = "%.3f" % state.lag_seconds
        if state.bytes_per_second:
            tags["pilot_xfer_bw"] = "%.0f" % (state.bytes_per_second / 1000.0)
        tags.update(_time_left(fixed))
        return tags

    def _of_tasks(self, now: float, pids: Sequence[int]) -> Dict[str, str]:
        before, load = self._load[1], host_facts.load_of(pids)
        seconds = now - self._load[0]
        self._load = (now, load)
        tags = {"pilot_task_mem_mb": "%.0f" % load.memory_mb}
        if self._fixed.memory_mb:
            share = 100.0 * load.memory_mb / self._fixed.memory_mb
            tags["pilot_task_mem_used"] = "%.0f" % share
        used = max(0.0, load.cpu_seconds - before.cpu_seconds)  # by tasks that still run
        if seconds < 10 * PERIOD_SECONDS:
            tags["pilot_task_cpu_used"] = "%.0f" % (100.0 * used / max(seconds, 1.0))
        return tags


def _static(fixed: PilotFacts) -> Dict[str, str]:
    size_mb, _ = host_facts.disk_mb(fixed.directory)
    tags = {
        "pilot_hash_name": fixed.pilot,
        "lrms_name": fixed.site,
        "arch": os.uname().machine,
        "os_name": os.uname().sysname,
        "os_version": host_facts.system_version(),
        "size_mem_mb": str(fixed.memory_mb),
        "size_disk_mb": str(size_mb),
        "cores": str(host_facts.cores()),
        "python": sys.version.split()[0],
        "scratch_dir": fixed.directory,
        "sw_dir": os.path.join(fixed.cache, "setups"),
        "queue_nodecount": str(fixed.slots),
        "queue_access": host_facts.user(),
        "gpus": ",".join(fixed.gpus),
    }
    tags.update(host_facts.cpu())
    return tags


def _time_left(fixed: PilotFacts) -> Dict[str, str]:
    tags = {}
    if fixed.until:
        tags["queue_maxtime"] = "%.0f" % max(0.0, fixed.until - time.time())
    limit, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if limit != resource.RLIM_INFINITY:
        used = resource.getrusage(resource.RUSAGE_SELF)
        tags["queue_maxcputime"] = "%.0f" % max(0.0, limit - used.ru_utime - used.ru_stime)
    return tags


def _differ(new: Dict[str, str], old: Dict[str, str]) -> bool:
    if set(new) != set(old):
        return True
    return any(
        value != old[name] and _noticeable(name, value, old[name]) for name, value in new.items()
    )


def _noticeable(name: str, new: str, old: str) -> bool:
    if ":" in name:
        return True
    try:
        before, after = float(old), float(new)
    except ValueError:
        return True
    return abs(after - before) > NOTICEABLE * max(abs(before), abs(after), 1.0)


def _named(path: str, digest: str) -> str:
    return "%s:%s" % (path, digest) if digest else path


def _listed(files: Iterable[Tuple[str, str]]) -> str:
    """As many files as fit into a tag."""
    words: List[str] = []
    length = 0
    for path, digest in files:
        word = _named(path, digest)
        length += len(word) + 1
        if length > LONGEST:
            break
        words.append(word)
    return " ".join(words)


def _merged(
    tags: Dict[str, str], change: Dict[str, Optional[str]]
) -> Tuple[Dict[str, str], List[str]]:
    """All tags of tasks, and the names of those that were dropped: the oldest of too many."""
    merged = {name: value for name, value in tags.items() if name not in change}
    merged.update({name: value for name, value in change.items() if value})
    room, kept = MOST_TASK_CHARACTERS, 0
    names = list(merged)
    for name in reversed(names):
        room -= len(name) + len(merged[name])
        if room < 0 or kept >= MOST_TASK_TAGS:
            break
        kept += 1
    gone = names[: len(names) - kept]
    return {name: merged[name] for name in names[len(gone) :]}, gone


def _load(path: str) -> Dict[str, str]:
    """The tags that earlier pilots of this host have kept, as far as a server accepts them."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        tags = {str(name): str(value) for name, value in content.items() if ":" in str(name)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    return _merged(allowed_tags(tags)[0], {})[0]


def _save(path: str, change: Dict[str, Optional[str]]) -> None:
    """Other pilots of this host write to this file, too."""
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        claim = lock(path + ".lock", wait=True)
        try:
            temporary = path + ".new"
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(_merged(_load(path), change)[0], file)
            os.replace(temporary, path)
        finally:
            if claim is not None:
                claim.close()
    except OSError:
        pass  # later pilots will not have these tags
