"""A slot's workspace: its files on disk, and what is done before and after a task.

The rule: nothing here waits, and nothing is left from one task to the next. The loop in ``slot``
says when; this module says how: place inputs (``inputs``), set limits (``resource_limits``), start
the process (``spawn``), take its files (``outputs``) and reports (``task_reports``), empty its
directory (``slot_files``). Most of that costs a plain task nothing.
"""

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from covey.pilot.calls.call_records import VALUE_FILE
from covey.pilot.files import inputs as inputs_module
from covey.pilot.files import outputs as outputs_module
from covey.pilot.files.output_patterns import InvalidPattern, Patterns, compiled
from covey.pilot.files.safe_paths import OwnRoot, Root, open_directory, open_up, remove
from covey.pilot.files.task_reports import (
    Folder,
    TagPipe,
    TaskResult,
    ignored_line,
    last_object,
    object_text,
)
from covey.pilot.slots import spawn
from covey.pilot.slots.orders import Plan
from covey.pilot.slots.slot_files import Home, OutputFiles, Space
from covey.pilot.walls import resource_limits
from covey.pilot.walls.disk_use import Disk

if TYPE_CHECKING:
    from covey.pilot.walls.sandbox import Sandbox


_NAMINGS = 8  # sets of variable names that are remembered for tasks of a plan


class SlotSettings(NamedTuple):
    """``group`` begins the names of control groups that slots may make; "": they make none. With a
    ``sandbox``, each task runs in one; ``memory_mb`` is then what a task without a limit may have
    in each of its directories in memory."""

    directory: str
    grace_seconds: float
    minimum_free_bytes: int
    group: str = ""
    sandbox: Optional["Sandbox"] = None
    memory_mb: int = 0


class Paths(NamedTuple):
    """The paths of a slot's files."""

    home: str
    out: str
    err: str
    result: str
    tags: str
    told: str  # the directory of the last two, which a task in a sandbox sees as a whole


def paths(directory: str, index: int) -> Paths:
    base = os.path.join(directory, "slot-{}".format(index))
    told = base + ".told"
    return Paths(base, base + ".out", base + ".err", told + "/result", told + "/tags", told)


def outbox(directory: str) -> str:
    """The directory where large outputs wait for the pilot."""
    return os.path.join(directory, "outbox")


def group_name(settings: SlotSettings, index: int) -> str:
    return "{}-{}".format(settings.group, index) if settings.group else ""


class Recipe:
    """A plan prepared for many tasks. If ``bare``, nothing is to be done before and after them."""

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
        self.outputs: Patterns = ()
        self.optional: Patterns = ()
        try:
            self.outputs = compiled(plan.outputs)
            self.optional = compiled(plan.optional_outputs)
        except InvalidPattern as error:
            self.problem = str(error)
        if walled and plan.chdir != plan.makes:
            words = "a pilot that several owners share cannot run tasks in {}: leave out chdir"
            self.problem = words.format(plan.chdir)
        self.bare = not (
            plan.links or plan.outputs or plan.optional_outputs or plan.check or self.problem
        )

    def environment(self, own: Dict[str, str]) -> List[bytes]:
        """The environment of a task that has these variables of its ``own``."""
        names = tuple(own)
        shared = self._shared.get(names)
        if shared is None:
            rest = {name: value for name, value in self._env.items() if name not in own}
            shared = spawn.variables(rest)
            if len(self._shared) < _NAMINGS:
                self._shared[names] = shared
        return shared + spawn.variables(own)


class GivenOrder(NamedTuple):
    """An order as it waits in a slot."""

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
    disk_mb: int


class Unready(Exception):
    """This host could not provide what the task needs."""


class Workspace:
    def __init__(self, settings: SlotSettings, index: int) -> None:
        self.settings = settings
        self.paths = paths(settings.directory, index)
        self.space = Space(settings.directory, settings.minimum_free_bytes)
        self.commands = spawn.Commands()
        in_memory = settings.sandbox.in_memory if settings.sandbox is not None else ()
        self.memory = resource_limits.Memory(group_name(settings, index), in_memory)
        self.disk = Disk()
        self.result = TaskResult(self.paths.result)
        self.tags = TagPipe(self.paths.tags)
        self.folder = Folder(self.paths.told, self.result, self.tags)
        self.outputs: List[OutputFiles] = []
        self.ready = False
        self.has_survivors = False  # a process that we could not end may still write to the outputs
        self._home: Optional[Home] = None
        self._cores: List[int] = []  # our own processors, once a task was bound to others
        self._taken: outputs_module.Found = {}  # the files that the last task returned

    # What is on disk

    def open(self) -> bool:
        """Make what is missing; False if the disk does not allow it: then try again."""
        try:
            if not self.ready:
                if self._home:
                    self._home.close()
                self._home = Home(self.paths.home)
            self.outputs = self.outputs or [
                OutputFiles(self.paths.out, 1),
                OutputFiles(self.paths.err, 2),
            ]
            self.folder.open()
            self.ready = True
        except OSError:
            self.ready = False
        return self.ready

    def recipe(self, plan: Plan) -> Recipe:
        return Recipe(plan, self.paths, self.settings.sandbox is not None)

    def tidy(self) -> None:
        """Restore everything as it was before the task, or clear ``ready``.

        In a sandbox, the next task may be of another owner. Then nothing is reused: all sandboxes
        share the network, and through it a task can pass descriptors of its directories and output
        to a task in another slot, which outlives it."""
        walled = self.settings.sandbox is not None
        try:
            if walled:
                if self._home:
                    self._home.renew()
                self.folder.open()
            else:
                if self._home:
                    self._home.tidy()
                self.folder.tidy()
            if self.has_survivors or walled:
                for output in self.outputs:
                    output.replace()
                self.has_survivors = False
        except OSError:
            self.ready = False

    def remove(self, abandoned: bool) -> None:
        """Remove everything at the end of the slot; also the outbox if it is ``abandoned``, because
        the pilot is gone and will never fetch it."""
        self.memory.remove()
        if self._home:
            self._home.remove()
        away = outbox(self.settings.directory)
        for path in self.paths[1:] + ((away,) if abandoned else ()):
            attempt(remove, path)
        attempt(os.rmdir, away)
        attempt(os.rmdir, self.settings.directory)  # succeeds in the last slot

    # Before a task

    def prepare(self, order: GivenOrder, breathe: Callable[[], None]) -> None:
        """Place the order's inputs; calls ``breathe`` if that takes long. Raises InputRefused or
        Unready."""
        plan = order.plan
        if plan.problem:
            raise inputs_module.InputRefused(plan.problem)
        try:
            compiled(order.outputs)
        except InvalidPattern as error:
            raise inputs_module.InputRefused(str(error)) from None
        links = plan.links + order.links
        if not plan.makes or not links:
            self.place(links, breathe)
            return
        try:
            made = open_directory(plan.makes)  # a setup gets its inputs in its own directory
        except OSError as error:
            raise Unready("cannot work in {}: {}".format(plan.makes, error.strerror)) from error
        try:
            self._place(links, breathe, made)
        finally:
            os.close(made)

    def place(self, links: List[Any], breathe: Callable[[], None]) -> None:
        """Raises InputRefused or Unready."""
        self._place(links, breathe, self._directory())

    def _place(
        self, links: List[Any], breathe: Callable[[], None], directory: Optional[int]
    ) -> None:
        # A task could write to a link after a chmod, and so change the cached file. With sandboxes
        # cached files are for several owners: see ``file_cache``.
        walled = self.settings.sandbox is not None
        for source, path, copy in links:
            try:
                inputs_module.place(source, path, copy or walled, breathe, directory)
            except OSError as error:
                words = "cannot place the input {}: {}: {}"
                raise Unready(words.format(path, source, error.strerror)) from error

    def displace(self, links: List[Any]) -> None:
        """Remove the files that were placed, if possible."""
        for _, path, _ in links:
            attempt(inputs_module.displace, path, self._directory())

    def _directory(self) -> Optional[int]:
        """The descriptor of our own directory, whose mode a task may have changed."""
        if self._home is None:
            return None
        attempt(open_up, self._home.fd)
        return self._home.fd

    def start(self, order: GivenOrder, argv: List[str], env: List[bytes]) -> int:
        """Start the command in the task's directory and within its limits; returns its process id.
        Raises Unready, OSError and ValueError."""
        chdir, file = order.plan.chdir, argv[0]
        try:
            if chdir:
                os.chdir(chdir)
            if "/" not in file:
                file = self.commands.find(file, order.env.get("PATH", order.plan.path))
            if order.disk_mb and self._home:
                inputs = [link[0] for link in order.plan.links + order.links]
                self.disk.begin(order.disk_mb, (self._home.path, self.paths.told), inputs)
            if order.memory_mb or order.cores:
                return self._start_confined(order, file, argv, env)
            return self._spawn(order, file, argv, env)
        finally:
            # No failure from here on may hide a process that was started.
            if chdir and self._home:
                attempt(self._home.enter)  # if it is gone, ``tidy`` makes another one

    def _spawn(self, order: GivenOrder, file: str, argv: List[str], env: List[bytes]) -> int:
        sandbox = self.settings.sandbox
        if sandbox is None or self._home is None:
            return spawn.start(file, argv, env)
        from covey.pilot.walls.sandbox import TaskView  # loaded already if there is a sandbox

        plan = order.plan
        writes = (self._home.path, self.paths.told) + ((plan.makes,) if plan.makes else ())
        reads = (plan.sees,) if plan.sees else ()
        size = (order.memory_mb or self.settings.memory_mb) << 20
        view = TaskView(writes, reads, plan.makes or self._home.path, size)
        return sandbox.start(view, file, argv, spawn.mapping(env))

    def _start_confined(
        self, order: GivenOrder, file: str, argv: List[str], env: List[bytes]
    ) -> int:
        if order.cores:
            self._cores = self._cores or resource_limits.bound()
            try:
                resource_limits.bind(order.cores)
            except OSError as error:
                words = "cannot bind it to processors {}: {}"
                raise Unready(words.format(order.cores, error.strerror)) from error
        try:
            if order.memory_mb:
                self.memory.begin(order.memory_mb)
            return self._spawn(order, file, argv, env)
        finally:
            if order.memory_mb:
                attempt(self.memory.spawned)
            if order.cores and self._cores:
                attempt(resource_limits.bind, self._cores)

    # After a task

    def take_result(self, printed: bytes) -> Tuple[str, str]:
        """The task's result, and a remark if a result was ignored. ``printed`` is the end of its
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
        return last_object(printed), remark or ignored_line(printed)

    def find(self, order: GivenOrder, breathe: Callable[[], None]) -> None:
        """Check that the files that the task must return are there. Raises Unfit if not: then the
        task has not succeeded."""
        root = self._root(order)
        try:
            self._search(root, order, True, False, breathe)
        finally:
            root.close()

    def take(self, order: GivenOrder, good: bool, breathe: Callable[[], None]) -> List[Any]:
        """The files to return, as plain tuples; only optional ones if the task failed. Raises
        Unfit, OSError."""
        plan = order.plan
        self._taken = {}
        if not (plan.optional or (good and (plan.outputs or order.outputs))):
            return []
        root = self._root(order)
        try:
            found = self._search(root, order, good, True, breathe)
            if not found:
                return []
            away = self._away(order)
            taken = outputs_module.take(root, found, away, plan.output_bytes, breathe)
            self._taken = found
            return [tuple(file) for file in taken]
        finally:
            root.close()

    def unkept(self, order: GivenOrder, breathe: Callable[[], None]) -> Tuple[Any, ...]:
        """The files that a successful task left and that are not returned, as a plain tuple. Empty
        for a task in a directory that is not ours: its files stay there."""
        taken, self._taken = self._taken, {}
        if order.plan.chdir or self._home is None or not self._home.has_files():
            return ()
        try:
            root = self._root(order)
            search = outputs_module.Search(
                root, _inputs(order), breathe, outputs_module.MOST_UNKEPT
            )
            search.found = taken
            unkept = search.unkept()
        except OSError:
            return ()
        return tuple(unkept) if unkept else ()

    def _root(self, order: GivenOrder) -> Root:
        """The directory that has the task's files. Raises OSError."""
        chdir = order.plan.chdir
        if chdir or self._home is None:
            return Root(chdir or ".")
        return OwnRoot(self._home.fd, self._home.path)

    def _search(
        self, root: Root, order: GivenOrder, good: bool, optional: bool, breathe: Callable[[], None]
    ) -> outputs_module.Found:
        plan = order.plan
        search = outputs_module.Search(root, _inputs(order), breathe)
        try:
            search.add(plan.outputs + compiled(order.outputs) if good else ())
        except InvalidPattern as error:
            raise outputs_module.Unfit(str(error)) from None
        search.add((), plan.optional if optional else ())
        search.weigh(plan.output_bytes)
        return search.found

    def take_value(self, order: GivenOrder, name: str) -> List[Any]:
        """The file with the result of a call, which a worker made. Raises Unfit, OSError."""
        missing = outputs_module.Unfit("its worker has no file {!r}".format(name))
        if not name or "/" in name:
            raise missing
        root = self._root(order)
        away, most_bytes = self._away(order), order.plan.output_bytes
        taker = outputs_module.Taker(root, away, most_bytes, _no_pause)
        try:
            taker.move(name, VALUE_FILE)
            return [tuple(file) for file in taker.files]
        except (outputs_module.Unfit, OSError) as error:
            taker.undo()
            if isinstance(error, OSError) and error.errno in outputs_module.CHANGED:
                raise missing from error
            raise
        finally:
            taker.close()
            root.close()

    def _away(self, order: GivenOrder) -> str:
        return os.path.join(outbox(self.settings.directory), order.key.replace("/", "_"))


def _inputs(order: GivenOrder) -> Dict[str, str]:
    return {path: source for source, path, _ in order.plan.links + order.links}


def _no_pause() -> None:
    pass


def attempt(function: Any, *arguments: Any) -> None:
    """Call the function; an OSError is ignored."""
    try:
        function(*arguments)
    except OSError:
        pass
