"""What a pilot does before it enrols: it checks its host, asks the server, renews itself if the
server has another version, finds sandboxes for tasks if several owners share it, and runs the
site's setup and check.

The rule: only a pilot that can work enrols. All problems are written to standard error; a failure
of the site's own commands is reported to the server too.
"""

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from covey.pilot.files.transfers import Meter, Transfers
from covey.pilot.host import host_checks, host_facts
from covey.pilot.host.host_checks import Hello
from covey.pilot.options import Options
from covey.pilot.protocol import renewal
from covey.pilot.protocol.request_threads import Identity

if TYPE_CHECKING:
    from covey.pilot.walls.sandbox import Sandbox

Say = Callable[[str], None]


class Arrival:
    def __init__(self, options: Options, version: str, say: Say) -> None:
        self._options = options
        self._version = version
        self._say = say
        self.problems: List[str] = []
        self.sandbox: Optional["Sandbox"] = None

    def check(self) -> Hello:
        """Fill `problems`; returns the server's first answer."""
        options = self._options
        self.problems = host_checks.of_host(options.directory)
        if options.shared:
            self._find_walls()
        hello = host_checks.wait_for(self._transfers(), options.address, options.reach_seconds)
        # A pilot on the server's own machine waits longer for the server.
        if hello.problem or (hello.away and not options.address_file):
            self.problems.append(hello.problem or hello.away)
        if abs(hello.skew_seconds) > host_checks.MOST_SKEW_SECONDS:
            # Nothing in covey depends on the clock, but certificates do, and tasks may.
            fast = "ahead of" if hello.skew_seconds > 0 else "behind"
            words = "the clock of this host is %.0f s %s the server's"
            self._say(words % (abs(hello.skew_seconds), fast))
        return hello

    def ready(self) -> bool:
        """Whether to go on; if not, the problems have been written to standard error. Does not
        return if the pilot renews itself."""
        hello = self.check()
        if not self.problems:
            self.renew(hello)
            return True
        sys.stderr.write(host_checks.block(self.problems))
        shutil.rmtree(self._options.directory, ignore_errors=True)
        self.tidy()
        return False

    def report(self) -> int:
        """Only check, and change nothing; returns the exit status."""
        there = os.path.isdir(self._options.directory)
        hello = self.check()
        if not there:
            shutil.rmtree(self._options.directory, ignore_errors=True)
        if self.problems:
            sys.stderr.write(host_checks.block(self.problems))
            return 1
        walls = ", tasks run in sandboxes of " + self.sandbox.name if self.sandbox else ""
        words = "covey-pilot %s: this host is ready%s; the server is %s\n"
        sys.stdout.write(words % (self._version, walls, hello.version or "there"))
        return 0

    def renew(self, hello: Hello) -> None:
        """Become the server's own pilot, if that is another. If that fails, go on as we are: the
        server refuses the enrolment if it does not speak our protocol."""
        options, file = self._options, renewal.own_file()
        if not renewal.wanted(self._version, hello.version, file, os.environ):
            return
        try:
            path = renewal.fetch(self._transfers(), hello.digest, options.directory)
            self._say("version %s becomes %s" % (self._version, hello.version))
            renewal.become(path, options.start_file, start_of(options), hello.version)
        except (renewal.Unrenewed, OSError) as error:
            self._say("this pilot stays at version %s: %s" % (self._version, error))

    def site_problem(self) -> Optional[str]:
        """The problem that the site's own setup or check found on this host; None if there is
        none."""
        options = self._options
        env = host_facts.task_environment(os.environ)
        env.update(COVEY_SITE=options.site, COVEY_DIRECTORY=options.directory)
        for what, command in (("setup", options.setup), ("check", options.check)):
            if command:
                seconds = options.check_seconds
                problem = host_checks.run(what, command, options.directory, env, seconds)
                if problem is not None:
                    return problem
        return None

    def tidy(self) -> None:
        """Remove the files that started this pilot and that nobody needs any more."""
        for path in self._options.discard:
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            elif os.path.exists(path):
                os.unlink(path)

    def _find_walls(self) -> None:
        from covey.pilot.walls import sandbox  # a large module; slots that need it inherit it

        options = self._options
        cache = options.cache or host_facts.cache_directory(os.environ, options.directory)
        try:
            self.sandbox = sandbox.find(options.directory, options.shows, [cache])
        except (sandbox.NoWalls, OSError) as error:
            words = "tasks of several owners need sandboxes (shared), and none works here: %s"
            self.problems.append(words % error)

    def _transfers(self) -> Transfers:
        identity = Identity()
        identity.credential = self._options.secret
        return Transfers(self._options.address, identity, Meter())


def start_of(options: Options) -> Dict[str, Any]:
    """The content of a start file that gives these options."""
    fields = dict(options._asdict())
    for name in ("address", "start_file"):
        del fields[name]
    if not options.address_file:
        fields.update(address=options.address.url(), ca=options.address.ca())
    return fields
