"""The checks of `covey doctor`. An error inside a check is reported as a failed check."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from covey import __version__, config
from covey.client import embedded
from covey.client.client import Client
from covey.core.errors import CoveyError
from covey.core.values.causes import last_line
from covey.frontend import formats
from covey.wire import Refused

OK, WARN, FAIL = "ok", "warn", "fail"
LITTLE_DISK_BYTES = 1 << 30
EARLIEST = 1_700_000_000.0  # a clock that shows an earlier time is wrong
SLOW_SECONDS = 20
SOON_SECONDS = 7 * 86_400.0  # renew a certificate that expires within this time
OFTEN_REFUSED = 100  # times in ten minutes
REFUSED_FOR = {
    "unauthorized": "no valid token, secret or credential",
    "too-large": "requests that were too large",
    "over-share": "one owner asked for more than its share",
    "unavailable": "the server was overloaded",
    "invalid": "invalid requests",
    "connection": "connections that did not identify themselves",
}
DAMAGED = "Stop the server, move the directory away, and restore a backup (covey help server)"
LOOPBACK = ("127.0.0.1", "::1")


class Check(Struct, frozen=True):
    name: str
    verdict: str
    told: str


def run_all(settled: config.Settled) -> list[Check]:
    return [
        _guarded(name, check, settled.config)
        for name, check in (
            ("covey", check_version),
            ("settings", lambda _: check_settings(settled)),
            ("directory", check_directory),
            ("file system", check_file_system),
            ("free disk", check_disk),
            ("record", check_record),
            ("server", check_server),
            ("bags", check_bags),
            ("refusals", check_refusals),
            ("sites", check_sites),
            ("cores", check_cores),
            ("memory limits", check_memory_limits),
            ("gpus", check_gpus),
            ("cache", check_cache),
            ("clock", check_clock),
            ("/proc", check_proc),
            ("pilot", check_pilot),
        )
    ]


def _guarded(name: str, check: Callable[[config.Config], Check], tree: config.Config) -> Check:
    try:
        return check(tree)
    except (CoveyError, OSError) as error:
        return Check(name, FAIL, str(error))


def check_version(_: config.Config) -> Check:
    return Check(
        "covey", OK, f"{__version__} on Python {platform.python_version()}, {sys.executable}"
    )


def check_settings(settled: config.Settled) -> Check:
    changed = {key: origin for key, origin in settled.origins.items() if origin != "default"}
    text = ", ".join(f"{key} ({origin})" for key, origin in changed.items()) or "all are defaults"
    unknown = config.unknown_variables(os.environ)
    return Check("settings", WARN if unknown else OK, "; ".join([text, *unknown]))


def _nearest(directory: Path) -> Path:
    """The directory, or the nearest parent that exists."""
    while not directory.exists():
        directory = directory.parent
    return directory


def check_directory(tree: config.Config) -> Check:
    place = _nearest(tree.directory)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Check(
            "directory", FAIL, f"cannot write in {place}: {error.strerror}; choose another: --dir"
        )
    new = "" if place == tree.directory else " (does not exist yet)"
    return Check("directory", OK, f"{tree.directory}{new}")


def check_file_system(tree: config.Config) -> Check:
    from covey import wiring

    kind, warning = wiring.file_system(tree.directory)
    return Check("file system", WARN if warning else OK, warning or kind or "unknown")


def check_disk(tree: config.Config) -> Check:
    free = shutil.disk_usage(_nearest(tree.directory)).free
    text = f"{free / (1 << 30):.1f} GB free"
    if free < LITTLE_DISK_BYTES:
        return Check("free disk", WARN, f"{text}: results may not fit; make room, or use --dir")
    return Check("free disk", OK, text)


def check_record(tree: config.Config) -> Check:
    """Whether the record is damaged. Every page of it is read."""
    from covey import wiring

    if tree.server:
        return Check("record", OK, "kept by the server; run 'covey doctor' on its machine")
    integrity = wiring.check_record(tree.directory)
    if integrity is None:
        return Check("record", OK, "none yet")
    if integrity.problem:
        return Check("record", FAIL, f"{integrity.problem.rstrip('.')}. {DAMAGED}")
    text = f"{formats.size(integrity.size)}, schema {integrity.version}"
    if integrity.old:
        words = "written by an earlier version; the next covey command converts it"
        return Check("record", WARN, f"{text}: {words}")
    if not integrity.complete:
        return Check(
            "record", WARN, f"{text}: no damage found, but not everything could be checked"
        )
    return Check("record", OK, f"{text}: no damage found")


def _client(tree: config.Config) -> Client | None:
    """A client of the running server; None if no server runs."""
    from covey.frontend.bag_places import remote_client

    client = remote_client(tree) if tree.server else embedded.attach(tree.directory)
    if client is not None:
        client.connection.patience_seconds = 0.0
    return client


def check_server(tree: config.Config) -> Check:
    client = _client(tree)
    if client is not None and tree.server:
        return _server_says(client, tree.server, "versions that are one apart work together")
    if client is not None:
        return _server_says(client, "this directory's", "stop it with 'covey stop'")
    if embedded.is_held(tree.directory):
        return Check("server", FAIL, _held_by(tree.directory))
    return Check("server", OK, "no server is running; 'covey run' starts one")


def _held_by(directory: Path) -> str:
    """The message about the process that holds the lock. The lock file names that process."""
    try:
        holder = json.loads((directory / "lock").read_text())
        who = f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError):
        who = "another process"
    return (
        f"{who} uses this directory but does not answer here; use covey on that machine, or read "
        f"{directory / 'server.log'} and stop that process"
    )


def _server_says(client: Client, where: str, if_other: str) -> Check:
    """What the server says about itself. `if_other` is the advice if it has another version."""
    view = client.server()
    text = (
        f"{where}: process {view.pid}, covey {view.version}, {view.state}, "
        f"{formats.count(view.pilots, 'pilot')} with {formats.count(view.slots, 'slot')}"
    )
    if view.disk_free_bytes:
        text += f", {formats.size(view.disk_free_bytes)} free"
    if view.certificate_expires:
        text += f", certificate valid until {formats.clock(view.certificate_expires)}"
        if view.certificate_expires < time.time() + SOON_SECONDS:
            return Check("server", WARN, f"{text}: renew it (covey help server)")
    if 0 < view.disk_free_bytes < LITTLE_DISK_BYTES:
        return Check("server", WARN, f"{text}: make room there, or covey purge old bags")
    if view.version != __version__:
        return Check("server", WARN, f"{text}; this is covey {__version__}: {if_other}")
    return Check("server", OK if view.state == "ready" else WARN, text)


def check_bags(tree: config.Config) -> Check:
    """Whether a bag is quarantined: paused because the server cannot handle it."""
    client = _client(tree)
    if client is None:
        return Check("bags", OK, "no server is running")
    view = client.server()
    text = f"{formats.count(view.bags, 'bag')} not finished"
    if view.overruns:
        text += f"; policies had to wait for their turn {formats.count(view.overruns, 'time')}"
    if not view.quarantined:
        return Check("bags", OK, text)
    text += f"; {view.quarantined} of them quarantined: 'covey bags' shows the reasons"
    return Check("bags", WARN, text)


def check_refusals(tree: config.Config) -> Check:
    """Whether the server refuses many requests: of strangers, or of an owner over its share."""
    try:
        client = _client(tree)
        if client is None:
            return Check("refusals", OK, "no server runs")
        often = [refused for refused in client.server().refused if refused.count >= OFTEN_REFUSED]
    except CoveyError:
        return Check("refusals", WARN, "unknown: the server does not answer")
    text = "; ".join(map(_refused_words, often))
    return Check("refusals", WARN if often else OK, text or "few in the last ten minutes")


def _refused_words(refused: Refused) -> str:
    who, kind = refused.owner or "strangers", refused.kind
    times = f"{refused.count:,} times in the last ten minutes"
    if not refused.owner:
        advice = "keep them off the server's port with a firewall; 'covey token list' shows tokens"
    elif kind == "over-share":
        advice = "one of their programs asks for too much at once; the error names the limit"
    else:
        advice = "check what their programs and pilots send"
    return f"{who} refused {times} ({REFUSED_FOR.get(kind, kind)}): {advice}"


def check_sites(tree: config.Config) -> Check:
    """The settings of the sites of covey.toml. No pilot is started; `covey site test` does that."""
    from covey import wiring

    sites = [wiring.check_site(spec) for spec in tree.sites]
    text = ", ".join(f"{spec.name} ({spec.driver})" for spec in tree.sites)
    far = [spec.name for spec in sites if spec.host or any(spec.facts.accounts or ())]
    if far and not tree.serve.public and tree.serve.listen in LOOPBACK:
        words = f"pilots at {', '.join(far)} cannot call a server on {tree.serve.listen}"
        return Check("sites", WARN, f"{text}; {words}: set serve.listen, or serve.public")
    return Check("sites", OK, text or "only this machine; to add others: covey help sites")


def check_cores(tree: config.Config) -> Check:
    usable, there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    text = f"{usable} usable of {there}; {formats.count(tree.local_slots, 'slot')} per local pilot"
    if tree.local_slots > usable:
        return Check("cores", WARN, f"{text}: more slots than cores")
    return Check("cores", OK, text)


def check_memory_limits(_: config.Config) -> Check:
    """How memory limits are enforced. The pilot's own code answers, so pilots here do the same."""
    from covey.pilot.walls import resource_limits

    group = resource_limits.make_group(f"covey-doctor-{os.getpid()}")
    if group is None:
        text = "by watching each task's processes; control groups cannot be made here"
        return Check("memory limits", OK, text)
    group.remove()
    return Check("memory limits", OK, "by the kernel, with control groups")


def check_gpus(tree: config.Config) -> Check:
    from covey.pilot.host import host_facts

    gpus = host_facts.gpus(tree.local.gpus, os.environ)
    text = f"{len(gpus)} seen: {', '.join(gpus)}" if gpus else "none found"
    return Check("gpus", OK, text)


def check_cache(tree: config.Config) -> Check:
    """The input files that local pilots keep."""
    from covey import wiring

    place, most = tree.directory / wiring.CACHE, formats.megabytes(tree.local.cache_mb)
    if not place.is_dir():
        return Check("cache", OK, f"empty; at most {most} will be kept in {place}")
    sizes = [
        os.lstat(os.path.join(folder, name)).st_blocks * 512
        for folder, _, names in os.walk(place)
        for name in names
    ]
    used = formats.size(sum(sizes))
    return Check("cache", OK, f"{used} in {formats.count(len(sizes), 'file')}, of at most {most}")


def check_clock(_: config.Config) -> Check:
    now = time.time()
    if now < EARLIEST:
        return Check("clock", FAIL, f"the clock is wrong ({time.ctime(now)}): set it")
    return Check("clock", OK, time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)))


def check_proc(_: config.Config) -> Check:
    if Path("/proc/self/stat").exists():
        return Check("/proc", OK, "available: memory of tasks and stray processes can be seen")
    return Check("/proc", WARN, "not available: memory of tasks and stray processes cannot be seen")


def check_pilot(_: config.Config) -> Check:
    """Whether the pilot file starts with this machine's `python3`. Only its help is printed."""
    from covey import wiring

    python = shutil.which("python3")
    if python is None:
        return Check("pilot", WARN, "no python3 on PATH; pilots need one: install Python 3")
    with tempfile.TemporaryDirectory(prefix="covey-doctor-") as folder:
        pilot = Path(folder) / "pilot.pyz"
        wiring.write_pilot_file(pilot)
        version = _output([python, "-I", "-c", "import sys; print(sys.version.split()[0])"])
        _output([python, str(pilot), "--help"])
    return Check("pilot", OK, f"starts under {python}, Python {version}")


def _output(command: list[str]) -> str:
    """What the command prints. Raises OSError with the last line of its errors if it fails."""
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=SLOW_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{command[0]} takes more than {SLOW_SECONDS} s to start") from None
    if process.returncode != 0:
        raise OSError(f"{' '.join(command[:2])} does not work: {last_line(process.stderr)}")
    return process.stdout.strip()
