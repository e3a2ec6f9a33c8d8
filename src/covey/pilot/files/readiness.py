"""Which attempts have everything they need: their files in the cache, and their bag's setup.

The rule: an attempt is reported once, as ready or as impossible. It waits only for its own files
and its own bag's setup. What failed is tried again for later attempts, but not immediately. Until
then some of the later attempts fail like the first, so that the bag's owner soon hears of the
problem; the others wait: one bad host must not fail a whole bag in a minute.
"""

from collections import deque
from typing import Deque, Dict, List, Mapping, NamedTuple, Sequence, Set

from covey.pilot.files.file_cache import FileCache, News
from covey.pilot.files.setups import DONE, RUN, Setups, problem_of
from covey.pilot.protocol.commands import BodyKey, Start, body_key
from covey.pilot.protocol.held_attempts import Holding
from covey.pilot.protocol.messages import HOST, SETUP, Body, Input
from covey.pilot.slots.orders import Link, Outcome

FILES_AGAIN_SECONDS = 5.0
SETUP_AGAIN_SECONDS = 30.0
MOST_ECHOES = 32  # later attempts that fail like the first because of the bag's own fault
LOOK_SECONDS = 0.25  # between looks at a setup that another pilot runs
VERIFY_SECONDS = 1.0


class Unable(NamedTuple):
    """An attempt that is impossible here, and its outcome."""

    key: str
    outcome: str
    words: str


class FileGroup:
    """Files that some attempts need together: those of a bag, or of one task."""

    def __init__(self, items: Dict[str, Input]) -> None:
        self.items = items  # by their names in the cache
        self.users: Set[str] = set()
        self.missing: Set[str] = set()
        self.problem = ""
        self.wrong = False  # the problem is the bag's fault
        self.echoes = 0
        self.again_at = 0.0
        self.verify_at = 0.0


class Setup:
    """The progress of a bag's setup on this host, as far as this pilot knows."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.state = ""  # "", RUN: queued or running here, DONE
        self.look_at = 0.0
        self.problem = ""  # of the last try
        self.echoes = 0
        self.waiting: Set[str] = set()


class Readiness:
    def __init__(self, cache: FileCache, setups: Setups) -> None:
        self._cache = cache
        self._setups = setups
        self._groups: Dict[str, FileGroup] = {}
        self._by_name: Dict[str, Set[str]] = {}  # file -> groups that wait for it
        self._troubled: Set[str] = set()  # groups with a problem
        self._waiting: Dict[str, Start] = {}
        self._bags: Dict[BodyKey, Setup] = {}
        # Until when attempts without files of their own need no check: all files of the bag's
        # present version are here, and it has no setup. The pilot's state reads this, too.
        self.ready_until: Dict[BodyKey, float] = {}
        self.ready: List[str] = []
        self.unable: List[Unable] = []
        self.to_run: Deque[Body] = deque()  # setups that a slot should run

    # -- news ------------------------------------------------------------------------------

    def prepare(self, start: Start, now: float) -> None:
        self._waiting[start.key] = start
        for name, inputs in (
            (_group_name(start.body), start.body.inputs),
            (start.key, start.task.inputs),
        ):
            if inputs:
                self._join(name, start, inputs, now)
        self._check(start, now)

    def forget(self, key: str, body: Body) -> None:
        """The attempt is over or was given back. The bag's files stay until the next `sweep`."""
        self._waiting.pop(key, None)
        if body_key(body) in self._bags:
            self._bags[body_key(body)].waiting.discard(key)
        group = self._groups.get(_group_name(body))
        if group is not None:
            group.users.discard(key)
        group = self._groups.get(key)
        if group is not None:
            group.users.discard(key)
            self._drop(key, group)

    def setup_over(self, body: Body, outcome: Outcome, now: float) -> None:
        setup = self._bags[body_key(body)]
        problem = problem_of(outcome.kind, outcome.message, outcome.stderr)
        try:
            self._setups.over(setup.body, problem is None)
        except OSError as error:
            problem = "covey cannot record that the bag's setup is done: %s" % error
        setup.state = "" if problem else DONE
        setup.problem, setup.echoes = "", 0
        waiting = sorted(setup.waiting)
        setup.waiting.clear()
        if outcome.kind in ("returned", "cancelled"):  # nobody's fault
            setup.waiting.update(waiting)
            return
        if problem is None:
            for key in waiting:
                self._check(self._waiting[key], now)
            return
        setup.look_at = now + SETUP_AGAIN_SECONDS
        if outcome.kind != HOST:
            setup.problem = problem
        for key in waiting:
            self._fail(key, HOST if outcome.kind == HOST else SETUP, problem)

    def turn(self, now: float) -> None:
        """Handle news of the cache, and try again what is due."""
        for news in self._cache.news():
            for name in sorted(self._by_name.pop(news.name, ())):
                self._arrived(name, news, now)
        for name in sorted(self._troubled):
            group = self._groups[name]
            if now >= group.again_at and self._waits(group):
                group.problem = ""
                self._troubled.discard(name)
                self._request(name, group, list(group.items))
        for setup in self._bags.values():
            if setup.waiting and (setup.state == DONE or self._due(setup, now)):
                for key in sorted(setup.waiting):
                    self._check(self._waiting[key], now)

    def wake_at(self, now: float) -> float:
        """When `turn` must be called again even without news."""
        due = now + 1.0
        for setup in self._bags.values():
            if setup.waiting and not setup.state:
                due = min(due, setup.look_at)
        return due

    def sweep(self, held: Mapping[str, Holding]) -> None:
        """Release files and setups of attempts and bags that are no longer here."""
        for key, start in list(self._waiting.items()):
            if key not in held:
                self.forget(key, start.body)
        bags = {body_key(holding.body) for holding in held.values()}
        used = {_group_name(holding.body) for holding in held.values()}
        for name, group in list(self._groups.items()):
            group.users = {key for key in group.users if key in held}
            if name not in used:
                self._drop(name, group)
        for bag in [bag for bag in self.ready_until if bag not in bags]:
            del self.ready_until[bag]
        for bag, setup in list(self._bags.items()):
            if bag in bags:
                self._setups.touch(setup.body)
            elif setup.state == DONE:
                del self._bags[bag]

    # -- what orders need ------------------------------------------------------------------

    def links(self, body: Body, inputs: Sequence[Input]) -> List[Link]:
        """The places on this host of the inputs of the bag, or of one of its tasks."""
        cache = self._cache
        names = [cache.name_of(item, body.bag, body.owner) for item in inputs]
        return [Link(cache.path(name), item.path, item.copy) for name, item in zip(names, inputs)]

    # -- inside ----------------------------------------------------------------------------

    def _join(self, name: str, start: Start, inputs: Sequence[Input], now: float) -> None:
        group = self._groups.get(name)
        if group is None:
            body = start.body
            items = {self._cache.name_of(item, body.bag, body.owner): item for item in inputs}
            group = self._groups[name] = FileGroup(items)
            self._request(name, group, list(group.items), first=True)
            group.verify_at = now + VERIFY_SECONDS
        group.users.add(start.key)

    def _request(self, name: str, group: FileGroup, files: List[str], first: bool = False) -> None:
        for file in files:
            if not first:
                self._cache.release(file)
            group.missing.add(file)
            self._by_name.setdefault(file, set()).add(name)
            self._cache.request(group.items[file], file)

    def _drop(self, name: str, group: FileGroup) -> None:
        if not group.users:
            del self._groups[name]
            self._troubled.discard(name)
            for file in group.items:
                self._cache.release(file)

    def _waits(self, group: FileGroup) -> bool:
        return any(key in self._waiting for key in group.users)

    def _arrived(self, name: str, news: News, now: float) -> None:
        group = self._groups.get(name)
        if group is None:
            return
        group.missing.discard(news.name)
        if news.problem and not group.problem:
            group.problem, group.wrong, group.echoes = news.problem, news.wrong, 0
            group.again_at = now + (SETUP_AGAIN_SECONDS if news.wrong else FILES_AGAIN_SECONDS)
            self._troubled.add(name)
        if group.problem or not group.missing:
            for key in sorted(group.users):
                if key in self._waiting:
                    self._look(self._waiting[key], group, now)

    def _look(self, start: Start, group: FileGroup, now: float) -> None:
        if group.problem:
            words = "cannot get an input: " + group.problem
            self._fail(start.key, SETUP if group.wrong else HOST, words)
        else:
            self._check(start, now)

    def _check(self, start: Start, now: float) -> None:
        """Report the attempt as ready if it is."""
        for name in (_group_name(start.body), start.key):
            group = self._groups.get(name)
            if group is None or start.key not in group.users:
                continue
            if not group.missing and not group.problem and now >= group.verify_at:
                group.verify_at = now + VERIFY_SECONDS
                lost = [file for file in group.items if not self._cache.intact(file)]
                self._request(name, group, lost)
            if group.wrong and group.problem and group.echoes < MOST_ECHOES:
                group.echoes += 1
                self._look(start, group, now)
                return
            if group.missing or group.problem:
                return
        if start.body.setup and not self._set_up(start, now):
            return
        del self._waiting[start.key]
        if start.body.setup:
            self._bags[body_key(start.body)].waiting.discard(start.key)
        elif start.body.inputs:
            until = self._groups[_group_name(start.body)].verify_at
            self.ready_until[body_key(start.body)] = until
        self.ready.append(start.key)

    def _due(self, setup: Setup, now: float) -> bool:
        return not setup.state and now >= setup.look_at

    def _set_up(self, start: Start, now: float) -> bool:
        """Whether the bag's setup is done; if not, the attempt waits for it."""
        body = start.body
        setup = self._bags.setdefault(body_key(body), Setup(body))
        if self._due(setup, now):
            setup.body, setup.look_at, setup.problem = body, now + LOOK_SECONDS, ""
            try:
                progress = self._setups.begin(body)
            except OSError as error:
                setup.look_at = now + SETUP_AGAIN_SECONDS
                self._fail(start.key, HOST, "the bag's setup cannot start here: %s" % error)
                return False
            setup.state = progress if progress in (DONE, RUN) else ""
            if progress == RUN:
                self.to_run.append(body)
        if setup.state == DONE:
            return True
        if setup.problem and not setup.state and setup.echoes < MOST_ECHOES:
            setup.echoes += 1
            self._fail(start.key, SETUP, setup.problem)
            return False
        setup.waiting.add(start.key)
        return False

    def _fail(self, key: str, outcome: str, words: str) -> None:
        start = self._waiting.pop(key, None)
        if start is not None:
            if body_key(start.body) in self._bags:
                self._bags[body_key(start.body)].waiting.discard(key)
            self.unable.append(Unable(key, outcome, words))


def _group_name(body: Body) -> str:
    return "bag %d inputs %d" % body_key(body)
