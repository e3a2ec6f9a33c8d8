"""Batch systems that are used by commands.

A `CommandDriver` builds commands and reads answers. It has no state and does no I/O: the same
question gives the same command, the same text the same answer. `CommandQueue` runs its commands
here or over SSH (see `shell`), and prepares what they need: credentials, a directory that all hosts
of the site share, and the pilot file in it.

A *batch* is one submission. All its jobs have the same script. In an array, `CommandDriver.index`
is the shell's word for the number of the element, from 0; the script uses it to find the job's name
and secret.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from covey.core.record.actions import Note
from covey.core.record.capacity import SiteCapacity
from covey.core.record.model import SiteFacts, SiteSpec
from covey.sites.commands import Command, Output
from covey.sites.driver import OpenSite, Seen, Shape, SiteContext, Submission
from covey.sites.errors import Away
from covey.sites.options import argument_options
from covey.sites.queue_site import QueueSite
from covey.sites.script import job_script
from covey.sites.shell import PLACE, Shell, put

CHECK_SECONDS = 60.0  # between two checks of credentials
STAGE_SECONDS = 600.0  # between two checks of the directory
HURRY_SECONDS = 30.0  # limit for covey's own small commands

# Makes the directory; prints its real path, whether the pilot file is there, and its SHA-256 if the
# site can compute it. (The job's script checks it, too.) Removes the output of pilots after a month
# (PBS calls it NUMBER.SERVER.OU).
STAGE = (
    PLACE + 'umask 077; mkdir -p "$d/log" && cd "$d" && pwd -P || exit 1; '
    "find log -type f '(' -name 'covey-*' -o -name '*.OU' ')' -mtime +30 "
    "-exec rm -f {} + 2>/dev/null; "
    'if test -s "$2"; then sum=$(sha256sum "$2" 2>/dev/null); echo "there ${sum%% *}"; '
    "else echo missing; fi"
)
CREDENTIALS = (
    'for f; do case $f in "~/"*) f=$HOME/${f#"~/"};; esac; '
    'test -r "$f" || { echo "$f"; exit 1; }; done'
)
SETTINGS = "SLURM_CONF"  # names a file; without the file, commands of Slurm wait for a minute


def directory_of(spec: SiteSpec) -> str:
    """As it is written; the shell code `PLACE` makes it absolute."""
    return spec.directory or f"~/.covey/sites/{spec.name}"


class Batch(NamedTuple):
    """`names` of the jobs, in the order of their indices. `title` is the first name; the others
    follow it in number. `directory`: the site's directory for output."""

    title: str
    names: tuple[str, ...]
    shape: Shape
    script: str
    directory: str


class CommandDriver:
    """Methods that read an answer may raise SiteError. `spec` is the site."""

    name: str
    options: type[Struct]
    most_elements = 1  # jobs in one batch: 1 if the system has no arrays
    index = "0"  # the shell's word for an element's number, from 0
    environment: Mapping[str, str] = {}  # makes answers look alike everywhere (LC_ALL)

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        raise NotImplementedError

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        """The handles of the jobs, in the order of the batch's names."""
        raise NotImplementedError

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        """Lists all jobs of this user whose names begin with the prefix."""
        raise NotImplementedError

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        """Raises Unclear if the output is not a list: an empty list means that no jobs exist."""
        raise NotImplementedError

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        """Cancels all of them at once. It is no failure if some have ended already."""
        raise NotImplementedError

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        """Reports how jobs ended that are no longer listed; None if the system cannot. The answer
        may lack some of these jobs, and have others of this server."""
        return None

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        """Empty if the site keeps no accounts. Raises Unclear if they could not be read."""
        return []

    def capacity(self, spec: SiteSpec) -> Command | None:
        """How much there is, and how much of it is free; None where the system does not tell."""
        return None

    def measured(self, spec: SiteSpec, output: Output) -> SiteCapacity:
        """Raises Unclear where this is no answer. What an answer does not tell stays None."""
        return SiteCapacity()

    def log(self, spec: SiteSpec) -> str:
        """The file for a job's output, below the site's directory, with {job} or {handle} in it."""
        return "log/covey-*-{job}.*"

    # -- the Driver ------------------------------------------------------------------------

    def facts(self, spec: SiteSpec) -> SiteFacts:
        """The option `whole_nodes` means the same for all batch systems."""
        options = argument_options(spec, self.options)
        return SiteFacts(
            whole_nodes=bool(getattr(options, "whole_nodes", False)),
            log=f"{directory_of(spec)}/{self.log(spec)}",
        )

    def open(self, spec: SiteSpec, context: SiteContext) -> OpenSite:
        return open_queue_site(self, spec, context, None)


def open_queue_site(
    driver: CommandDriver, spec: SiteSpec, context: SiteContext, host: str | None
) -> QueueSite:
    """`host`: where its commands run; None: on the host that the site names."""

    def queue(spec: SiteSpec) -> CommandQueue:
        where = spec.host if host is None else host
        return CommandQueue(driver, spec, context, context.shells.to(where))

    return QueueSite(spec, queue, context).start()


class CommandQueue:
    """A `Queue` that runs the commands of a driver."""

    def __init__(
        self, driver: CommandDriver, spec: SiteSpec, context: SiteContext, shell: Shell
    ) -> None:
        self.most_jobs = driver.most_elements
        self._driver = driver
        self._spec = spec
        self._context = context
        self._shell = shell
        self._checked_at = self._staged_at = -math.inf
        self._place = self._pilot = self._digest = ""

    def prepare(self, submission: Submission) -> Callable[[], Sequence[str]]:
        self._check_credentials()
        self._stage()
        source = self._context.pilot_source(self._pilot, self._digest)
        batch = Batch(
            submission.names[0],
            submission.names,
            submission.shape,
            job_script(self._spec, submission.jobs, self._driver.index, source),
            f"{self._place}/log",
        )
        command = self._driver.submit(self._spec, batch)
        return lambda: self._driver.submitted(self._spec, batch, self._run(command))

    def listed(self, prefix: str) -> Sequence[Seen]:
        self._check_credentials()
        output = self._run(self._driver.status(self._spec, prefix))
        return self._driver.listed(self._spec, prefix, output)

    def cancel(self, handles: Sequence[str]) -> None:
        self._run(self._driver.cancel(self._spec, handles))

    def accounts(self, handles: Sequence[str]) -> Sequence[Seen] | None:
        command = self._driver.accounting(self._spec, handles)
        return None if command is None else self._driver.accounted(self._spec, self._run(command))

    def capacity(self) -> SiteCapacity | None:
        command = self._driver.capacity(self._spec)
        return None if command is None else self._driver.measured(self._spec, self._run(command))

    def close(self) -> None:
        self._shell.close()

    # -- what commands need ----------------------------------------------------------------

    def _run(self, command: Command) -> Output:
        environment = {**self._driver.environment, **self._spec.environment}
        return self._shell.run(command, environment)

    def _run_own(self, script: str, *words: str) -> Output:
        return self._run(Command(("/bin/sh", "-c", script, *words), b"", HURRY_SECONDS))

    def _check_credentials(self) -> None:
        """Check the credentials, and the settings of the site's commands. Raises Away."""
        spec = self._spec
        if self._context.now() < self._checked_at + CHECK_SECONDS:
            return
        settings = spec.environment.get(SETTINGS, "")
        if settings and self._run_own(CREDENTIALS, "sh", settings).status:
            raise Away(f"{SETTINGS} = '{settings}': the file is missing or cannot be read")
        if spec.credentials:
            output = self._run_own(CREDENTIALS, "sh", *spec.credentials)
            if output.status:
                raise Away(f"the credential {output.words} is missing, or cannot be read")
        if spec.credential_check:
            output = self._run_own(spec.credential_check)
            if output.status:
                raise Away(f"the credential check failed: {output.words}")
        self._checked_at = self._context.now()

    def _stage(self) -> None:
        """Check the site's directory and the pilot file in it, once in `STAGE_SECONDS`; write the
        file if needed. Raises Away and Unclear."""
        if self._context.now() < self._staged_at + STAGE_SECONDS:
            return
        pilot, directory = self._context.read_pilot_file(), directory_of(self._spec)
        output = self._run_own(STAGE, "sh", directory, pilot.name)
        lines = output.stdout.splitlines()
        if output.status or len(lines) != 2:
            raise Away(f"cannot use the site's directory {directory}: {output.words}")
        self._place, self._digest = lines[0], pilot.digest
        self._pilot = f"{self._place}/{pilot.name}"
        there, _, digest = lines[1].partition(" ")
        changed = there == "there" and digest not in ("", pilot.digest)
        if changed:
            detail = f"{self._pilot} at {self._spec.name}; covey writes it again"
            self._context.note(Note("the pilot file at a site was changed", detail=detail))
        if changed or there != "there":
            put(self._shell, self._pilot, pilot.data)
        self._staged_at = self._context.now()
