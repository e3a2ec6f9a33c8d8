"""A slot's workplace: what it has on disk, and what it does before a task runs and after.

The rule: nothing here waits, and nothing is left from one task to the next. The loop of ``slot``
says when; here is how: inputs placed (``furnish``), limits set (``confine``), the process started
(``spawn``), its files taken (``harvest``) and what it told (``told``), its directory emptied
(``scratch``). A plain task passes through most of that for nothing.
"""

import os
import stat
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from covey.pilot import confine, furnish, harvest, spawn
from covey.pilot.calling import VALUE_FILE
from covey.pilot.orders import Plan, Returned
from covey.pilot.scratch import Home, Output, Space, remove
from covey.pilot.told import Folder, Result, Tags, last_object, object_text

if TYPE_CHECKING:
    from covey.pilot.sandbox import Sandbox


_NAMINGS = 8  # sets of names that tasks of a plan have of their own, and are remembered


class Settings(NamedTuple):
    """``group`` begins the names of control groups that slots may make; none: they make none.
    With a ``sandbox`` tasks are walled in."""

    directory: str
    grace_seconds: float
    minimum_free_bytes: int
    group: str = ""
    sandbox: Optional["Sandbox"] = None


class Paths(NamedTuple):
    """What a slot has on disk."""

    home: str
    out: str
    err: str
    result: str
    tags: str
    told: str  # the directory of the last two, which a walled-in task sees as a whole


def paths(directory: str, index: int) -> Paths:
    base = os.path.join(directory, "slot-{}".format(index))
    told = base + ".told"
    return Paths(base, base + ".out", base + ".err", told + "/result", told + "/tags", told)


def outbox(directory: str) -> str:
    """Where large outputs wait for the pilot."""
    return os.path.join(directory, "outbox")


def group_name(settings: Settings, index: int) -> str:
    return "{}-{}".format(settings.group, index) if settings.group else ""


class Recipe:
    """A plan made ready for many tasks. A ``bare`` one has nothing to do before and after them."""

    __slots__ = (
        "_env", "_shared", "ahead", "bare", "calls", "chdir", "check", "links", "log_bytes",
        "makes", "ok_codes", "optional", "output_bytes", "outputs", "path", "problem", "sees",
    )  # fmt: skip

    def __init__(self, plan: Plan, where: Paths, walled: bool = False) -> None:
        env = dict(plan.env, COVEY_RESULT=where.result, COVEY_TAGS=where.tags)
        if walled:
            env.setdefault("HOME", where.home)
        self.sees, self.makes = plan.sees, plan.makes
        self._env = env
        self._shared: Dict[Tuple[str, ...], List[bytes]] = {}
        self.path = plan.env.get("PATH", os.defpath)
        self.chdir = plan.chdir
        self.calls = plan.calls
        self.ahead = plan.ahead
        self.links = plan.links
        self.output_bytes = plan.output_bytes
        self.ok_codes = frozenset(plan.ok_codes)
        self.check = plan.check
        self.log_bytes = plan.log_bytes
        self.problem = ""
        self.outputs: harvest.Patterns = ()
        self.optional: harvest.Patterns = ()
        try:
            self.outputs = harvest.patterns(plan.outputs)
            self.optional = harvest.patterns(plan.optional_outputs)
        except harvest.Unfit as unfit:
            self.problem = str(unfit)
        if walled and plan.chdir != plan.makes:
            self.problem = "a pilot that several owners share has no {} for tasks: leave out chdir"
            self.problem = self.problem.format(plan.chdir)
        self.bare = not (
            plan.links or plan.outputs or plan.optional_outputs or plan.check or self.problem
        )

    def environment(self, own: Dict[str, str]) -> List[bytes]:
        """Of a task that has these variables of its ``own``."""
        names = tuple(own)
        shared = self._shared.get(names)
        if shared is None:
            rest = {name: value for name, value in self._env.items() if name not in own}
            shared = spawn.variables(rest)
            if len(self._shared) < _NAMINGS:
                self._shared[names] = shared
        return shared + spawn.variables(own)


class Given(NamedTuple):
    """An order as it waits here."""

    number: int
    key: str
    plan: Recipe
    argv: List[str]
    env: Dict[str, str]
    limit_seconds: float
    memory_mb: int
    cores: List[int]
    links: List[Any]
    outputs: List[str]
    call: str


class Unready(Exception):
    """This host could not provide what the task needs."""


class Bench:
    def __init__(self, settings: Settings, index: int) -> None:
        self.settings = settings
        self.paths = paths(settings.directory, index)
        self.space = Space(settings.directory, settings.minimum_free_bytes)
        self.commands = spawn.Commands()
        self.memory = confine.Memory(group_name(settings, index))
        self.result = Result(self.paths.result)
        self.tags = Tags(self.paths.tags)
        self.folder = Folder(self.paths.told, self.result, self.tags)
        self.outputs: List[Output] = []
        self.ready = False
        self.haunted = False  # something that we could not end may still write to the outputs
        self._home: Optional[Home] = None
        self._cores: List[int] = []  # our own, once a task was bound to others

    # What is on disk

    def open(self) -> bool:
        """Make what is missing; False when the disk does not let us: to be tried again."""
        try:
            if not self.ready:
                self._home = Home(self.paths.home)
            self.outputs = self.outputs or [Output(self.paths.out, 1), Output(self.paths.err, 2)]
            self.folder.open()
            self.ready = True
        except OSError:
            self.ready = False
        return self.ready

    def recipe(self, plan: Plan) -> Recipe:
        return Recipe(plan, self.paths, self.settings.sandbox is not None)

    def tidy(self) -> None:
        """Have everything as it was before the task, or not be ``ready``."""
        try:
            if self._home:
                self._home.tidy()
            self.folder.tidy()
            if self.haunted:
                for output in self.outputs:
                    output.replace()
                self.haunted = False
        except OSError:
            self.ready = False

    def remove(self, abandoned: bool) -> None:
        """At the end of the slot. The outbox goes too when it is ``abandoned``: the pilot is gone
        and will never fetch what is there."""
        self.memory.remove()
        if self._home:
            self._home.remove()
        away = outbox(self.settings.directory)
        for path in self.paths[1:] + ((away,) if abandoned else ()):
            attempt(remove, path)
        attempt(os.rmdir, away)
        attempt(os.rmdir, self.settings.directory)  # the last one out succeeds

    # Before a task

    def prepare(self, given: Given, breathe: Callable[[], None]) -> None:
        """Place its inputs, calling ``breathe`` if that takes long. Raises Refused or Unready."""
        plan = given.plan
        if plan.problem:
            raise furnish.Refused(plan.problem)
        self.place(plan.links + given.links, breathe)

    def place(self, links: List[Any], breathe: Callable[[], None]) -> None:
        """Raises Refused or Unready."""
        # A link is the host's own copy, to which its user may write after all: not for strangers.
        walled = self.settings.sandbox is not None
        for source, path, copy in links:
            try:
                furnish.place(source, path, copy or walled, breathe)
            except OSError as error:
                words = "cannot place the input {}: {}: {}"
                raise Unready(words.format(path, source, error.strerror)) from error

    def start(self, given: Given, argv: List[str], env: List[bytes]) -> int:
        """Start the command where the task runs and within its limits; its process id. Raises
        Unready, OSError and ValueError."""
        chdir, file = given.plan.chdir, argv[0]
        try:
            if chdir:
                os.chdir(chdir)
            if "/" not in file:
                file = self.commands.find(file, given.env.get("PATH", given.plan.path))
            if given.memory_mb or given.cores:
                return self._start_confined(given, file, argv, env)
            return self._spawn(given, file, argv, env)
        finally:
            # Nothing that fails from here on may hide a process that was started.
            if chdir and self._home:
                attempt(self._home.enter)  # if it is gone, ``tidy`` makes another

    def _spawn(self, given: Given, file: str, argv: List[str], env: List[bytes]) -> int:
        sandbox = self.settings.sandbox
        if sandbox is None or self._home is None:
            return spawn.start(file, argv, env)
        from covey.pilot.sandbox import View  # the pilot has loaded it, if it is used at all

        plan = given.plan
        writes = (self._home.path, self.paths.told) + ((plan.makes,) if plan.makes else ())
        reads = (plan.sees,) if plan.sees else ()
        view = View(writes, reads, plan.makes or self._home.path)
        return sandbox.start(view, file, argv, spawn.mapping(env))

    def _start_confined(self, given: Given, file: str, argv: List[str], env: List[bytes]) -> int:
        if given.cores:
            self._cores = self._cores or confine.bound()
            try:
                confine.bind(given.cores)
            except OSError as error:
                words = "cannot bind it to processors {}: {}"
                raise Unready(words.format(given.cores, error.strerror)) from error
        try:
            if given.memory_mb:
                self.memory.begin(given.memory_mb)
            return self._spawn(given, file, argv, env)
        finally:
            if given.memory_mb:
                attempt(self.memory.spawned)
            if given.cores and self._cores:
                attempt(confine.bind, self._cores)

    # After a task

    def told(self, printed: bytes) -> Tuple[str, str]:
        """The task's result, and a remark if it gave one in vain. ``printed`` is the end of its
        standard output."""
        data = self.result.take()
        if data is None and not printed:
            return "", ""
        remark = ""
        if data is not None:
            try:
                return object_text(data), ""
            except ValueError as error:
                remark = "$COVEY_RESULT was ignored: {}".format(error)
        return last_object(printed), remark

    def find(self, given: Given) -> harvest.Found:
        """The files that it must return. Raises Unfit when it cannot be said to have ended well."""
        wanted = given.plan.outputs + harvest.patterns(given.outputs)
        found = harvest.find(given.plan.chdir, wanted, (), _inputs(given))
        harvest.weigh(found, given.plan.output_bytes)
        return found

    def take(self, given: Given, found: harvest.Found) -> List[Any]:
        """Those files, and the optional ones, as they cross the line. Raises Unfit, OSError."""
        plan = given.plan
        if plan.optional:
            found.update(harvest.find(plan.chdir, (), plan.optional, _inputs(given)))
            harvest.weigh(found, plan.output_bytes)
        taken = harvest.take(plan.chdir, found, self._away(given), bool(plan.chdir))
        return [tuple(file) for file in taken]

    def take_value(self, given: Given, name: str) -> List[Any]:
        """The file in which a worker put what came of a call. Raises Unfit, OSError.

        It is looked at where its worker cannot reach it any more: in the directory of one that is
        somebody else's, a link to a file of ours might take its place in between."""
        plan, away = given.plan, self._away(given) + "-0"
        missing = harvest.Unfit("its worker has no file {!r}".format(name))
        path = os.path.join(plan.chdir, name)
        if not name or "/" in name or not stat.S_ISREG(os.lstat(path).st_mode):
            raise missing
        os.makedirs(os.path.dirname(away), 0o700, exist_ok=True)
        os.rename(path, away)
        try:
            seen = os.lstat(away)
            if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1:
                raise missing
            harvest.weigh({name: seen}, plan.output_bytes)
            os.chmod(away, 0o600)
        except (harvest.Unfit, OSError):
            attempt(os.unlink, away)
            raise
        return [tuple(Returned(VALUE_FILE, seen.st_size, False, b"", away))]

    def _away(self, given: Given) -> str:
        return os.path.join(outbox(self.settings.directory), given.key.replace("/", "_"))


def _inputs(given: Given) -> Dict[str, str]:
    return {path: source for source, path, _ in given.plan.links + given.links}


def attempt(function: Any, *arguments: Any) -> None:
    """Call it; that it fails is fine."""
    try:
        function(*arguments)
    except OSError:
        pass
