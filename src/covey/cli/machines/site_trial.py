"""`covey site test`: start one pilot, report each step, and say what to do if a step fails.

The pilot is like any other: it may run a waiting task. When the test is over, the pilot is
cancelled or told to end. If this command is killed, the server cancels a pilot that has waited for
a day.
"""

import glob
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from covey.cli.bags.purge import seconds_option
from covey.cli.shared.commands import Command, json_option, leave, print_json, settings
from covey.config_sites import LOCAL
from covey.core.values.causes import last_line
from covey.frontend import bag_places, formats
from covey.frontend.terminal import echo, say

if TYPE_CHECKING:
    from covey.client.client import Client
    from covey.core.record.model import SiteSpec
    from covey.wire import TrialStep, TrialView

POLL_SECONDS = 2.0
REMIND_SECONDS = 30.0  # how often to say that the test still waits
ENROLLED = "enrolled"
READY = "ready"
LEFT = "left"
WORDS = {
    "asked": "one pilot is asked for",
    "submitted": "submitted",
    "started": "started, as the site says",
    "requeued": "it waits again: requeued",
    ENROLLED: "its pilot calls the server",
    READY: "its pilot asks for work",
    LEFT: "its pilot left",
    "refused": "refused",
    "vanished": "not listed any more",
    "ended": "ended",
}
_NO_COMMAND = re.compile(r"not found|no such file|exit status 127", re.IGNORECASE)
_NO_DIRECTORY = re.compile(r"cannot use \S+ there|cannot be written", re.IGNORECASE)
_NO_SETTINGS = re.compile(
    r"configuration (file|source)|no configuration|configless|SGE_ROOT|SLURM_CONF|CONDOR_CONFIG|"
    r"lsf\.conf",
    re.IGNORECASE,
)
# What batch systems say when none of their hosts is large enough.
_TOO_MUCH = re.compile(
    r"node configuration is not available|memory specification|exceeds? (the )?"
    r"(queue|resource|max|limit|partition)|job violates|no suitable|more processors requested|"
    r"resource_list|cannot be satisfied|unsatisfiable",
    re.IGNORECASE,
)
_NO_WAY = re.compile(
    r"cannot connect|resolve|connection (refused|timed out|closed)|no route|host key|unreachable",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(r"credential|permission denied|kerberos|ticket|expired", re.IGNORECASE)


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--timeout",
    callback=seconds_option,
    metavar="TIME",
    default="10m",
    show_default=True,
    help="How long to wait for the pilot: 90s, 2h.",
)
@json_option
def test(name: str, timeout: float, as_json: bool) -> None:
    """Start one pilot at a site. If that fails, say at which step, and what to do. The pilot is
    removed afterwards. A site that is paused or rests can be tested, too. The exit status is 1 if
    the test fails.

    During the test the pilot works like any other: it runs waiting tasks if it can.

    \b
    covey site test cluster
    covey site test cluster --timeout 2h --json
    """
    client = bag_places.client(settings())
    trial = client.try_site(name)
    if not as_json:
        _warn(trial)
    try:
        trial = _follow(client, trial, timeout, as_json)
    finally:  # also with Ctrl-C
        client.end_trial(name, trial.job)
    good = _ready(trial) is not None
    hints = [] if good else list(advice(trial, client.site(name).spec))
    if as_json:
        last = trial.steps[-1]
        reached = {"works": good, "step": READY if good else last.kind, "advice": hints}
        print_json({**reached, "reason": "" if good else _reason(trial), "trial": trial})
    elif good:
        _say_good(trial)
    else:
        say(f"site {name} does not work yet: {_reason(trial)}")
        for line in hints:
            echo(f"  - {line}", err=True)
    leave(0 if good else 1)


def _warn(trial: "TrialView") -> None:
    if _is_loopback(trial.address) and trial.site != LOCAL:
        say(f"this server is at {trial.address}: only pilots on this machine can reach it")


def _follow(client: "Client", trial: "TrialView", timeout: float, as_json: bool) -> "TrialView":
    """Report the steps until the pilot is ready, the trial is over, or the time is up."""
    began = trial.steps[0].at
    shown, trouble, until = 0, "", time.monotonic() + timeout
    remind = time.monotonic() + REMIND_SECONDS
    while True:
        if not as_json:
            for step in trial.steps[shown:]:
                echo(_line(step, began))
            if trial.trouble not in ("", trouble) and not trial.over and not _ready(trial):
                echo(f"{'':>9}  the site: {trial.trouble}")
            trouble = trial.trouble
            if time.monotonic() > remind and not trial.over:
                remind = time.monotonic() + REMIND_SECONDS
                left = formats.duration(until - time.monotonic())
                echo(f"{'':>9}  … waiting for at most {left} more; Ctrl-C cancels the pilot")
        shown = len(trial.steps)
        if _ready(trial) is not None or trial.over or time.monotonic() > until:
            return trial
        wait = max(0.1, min(POLL_SECONDS, until - time.monotonic()))
        trial = client.trial(trial.site, trial.job, seen=shown, wait_seconds=wait)


def _line(step: "TrialStep", began: float) -> str:
    words = WORDS.get(step.kind, step.kind)
    if step.text:
        form = {"submitted": "{}; the site calls it {}", ENROLLED: "{}, from {}"}
        words = form.get(step.kind, "{}: {}").format(words, step.text)
    return f"{formats.duration(step.at - began):>9}  {words}"


def _ready(trial: "TrialView") -> "TrialStep | None":
    """The step in which the pilot asks for work: the site works. Enrolling is not enough, because
    the pilot leaves again if the site's check fails."""
    return next((step for step in trial.steps if step.kind == READY), None)


def _say_good(trial: "TrialView") -> None:
    step = _ready(trial)
    assert step is not None
    took = formats.duration(step.at - trial.steps[0].at)
    say(f"site {trial.site} works: a pilot in {took}; it is shutting down now")
    if trial.trouble:
        more = "; to go on at once: covey site resume " + trial.site
        say(f"nothing is started there just now, though: {trial.trouble}{more}")


def _reason(trial: "TrialView") -> str:
    left = next((step for step in trial.steps if step.kind == LEFT), None)
    if left is not None:
        return f"its pilot left before it could work: {left.text or 'it gave no reason'}"
    last = trial.steps[-1]
    if last.kind in ("refused", "vanished", "ended"):
        before = trial.steps[-2].kind if len(trial.steps) > 1 else "asked"
        when = {"started": "after it started, ", "submitted": "after it was submitted, "}
        return f"{when.get(before, '')}{WORDS[last.kind]}: {last.text or 'the reason is unknown'}"
    if trial.trouble:
        return trial.trouble
    stuck = {
        "asked": "it could not be submitted in time",
        "submitted": "it did not start in time",
        "requeued": "it did not start again in time",
        "started": "it runs, but its pilot has not called the server",
    }
    return stuck.get(last.kind, "its pilot has not called the server")


# -- advice --------------------------------------------------------------------------------------


def advice(trial: "TrialView", spec: "SiteSpec | None") -> Iterator[str]:
    """What to do about a trial whose pilot did not become ready."""
    kinds, reason = [step.kind for step in trial.steps], _reason(trial)
    if LEFT in kinds:
        yield f"what is checked there (check, setup): covey site show {trial.site}"
        yield _printed(trial, spec)
    elif kinds[-1] == "refused" or kinds == ["asked"]:
        yield from _of_submission(trial, reason)
    elif kinds[-1] in ("ended", "vanished"):
        yield _printed(trial, spec)
        yield "do its nodes have Python 3.6 or later? If not, set setup ('module load …') or python"
        yield _way(trial)
    elif "started" in kinds:
        yield _way(trial)
        yield _printed(trial, spec)
    else:
        handle = next((step.text for step in trial.steps if step.kind == "submitted"), "")
        yield (
            f"it waits in the site's own queue{f' as {handle}' if handle else ''}: ask that "
            "queue for the reason. Perhaps the site is busy, or never has what is asked for "
            "(slots, memory, wall, options)"
        )
        yield f"to wait for longer: covey site test {trial.site} --timeout 2h"


def _of_submission(trial: "TrialView", reason: str) -> Iterator[str]:
    site = trial.site
    if _CREDENTIALS.search(reason) and not _NO_DIRECTORY.search(reason):
        yield (
            "credentials are missing or no longer valid where the site's commands run: renew them "
            "(ssh-add, kinit, …), and say where they are: credentials, credential_check"
        )
    if _NO_DIRECTORY.search(reason):
        yield (
            "the user that runs the site's commands cannot make its directory, or write to it: "
            f"choose another one: covey site edit {site} directory=…"
        )
    elif _TOO_MUCH.search(reason):
        yield (
            "no host there has as much as a pilot asks for: ask for less (slots, memory, disk, "
            "gpus, wall), or name another queue or partition in its options"
        )
    elif _NO_SETTINGS.search(reason):
        yield (
            "its commands do not find their own settings where they run: set the variables that "
            "name the settings in its environment (SLURM_CONF, SGE_ROOT, …), or run the commands "
            "elsewhere: host"
        )
    elif _NO_COMMAND.search(reason):
        yield (
            "the site's commands are not found: with 'host', is that its login node? Else give "
            f"their place: covey site edit {site} environment.PATH=…, or in covey.toml"
        )
    if _NO_WAY.search(reason):
        words = "does this work for the server's user, without a question"
        yield f"{words}: ssh -o BatchMode=yes HOST true"
    yield f"what is asked of the site: covey site show {site}; try the same there by hand"


def _way(trial: "TrialView") -> str:
    """Advice about the network between the pilot and the server."""
    if _is_loopback(trial.address):
        return (
            f"pilots are told to call {trial.address}, which on every machine means that machine "
            'itself: let the server listen for others ([serve] listen = "0.0.0.0" in covey.toml), '
            "and restart it"
        )
    return (
        f"on a node of the site, does this work: curl -k {trial.address}/healthz ? If not, a "
        "firewall blocks it, or the name is not known there ([serve] public)"
    )


def _printed(trial: "TrialView", spec: "SiteSpec | None") -> str:
    """Where to find what the pilot printed; if that is on this machine, its last line."""
    if spec is None or not spec.facts.log:
        return "what the pilot printed is in the log of its site job"
    handle = next((step.text for step in trial.steps[::-1] if step.kind == "submitted"), "*")
    place = spec.facts.log.replace("{job}", trial.job).replace("{handle}", handle)
    if not spec.host:
        for path in sorted(glob.glob(os.path.expanduser(place))):
            last = last_line(Path(path).read_text(errors="replace"))
            if last:
                return f"the last line that the pilot printed: {last} ({path})"
    return f"what the pilot printed is there in {place}"


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
