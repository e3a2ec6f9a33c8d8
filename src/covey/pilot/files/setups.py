"""A bag's setup, run once per host before the bag's first task there.

    setups/HOST/KEY/tree   the directory in which it runs, with the bag's inputs; $COVEY_SETUP
    setups/HOST/KEY/done   exists once it has succeeded; its users touch it
    setups/HOST/KEY/lock   held by the pilot that runs it

The rule: `done` exists only after a setup that succeeded in a directory made for it. KEY stands for
the bag, its owner and all that the setup could see. So a bag with the same number from another
server finds either nothing or an equal setup, and no owner gets what another owner's setup made.

In sandboxes, only the setup itself can write to its tree, and only tasks of that bag can read it;
nothing in a sandbox sees `done` and `lock`. The slot places the inputs (`workspace`): as copies in
a sandbox, else as links to files of the same owner (see `file_cache`).
"""

import hashlib
import json
import os
import time
from typing import Dict, List, Optional

from covey.pilot.files.cache_leases import CacheLock, lock
from covey.pilot.files.safe_paths import remove
from covey.pilot.protocol.commands import BodyKey, body_key
from covey.pilot.protocol.messages import Body
from covey.pilot.slots.orders import Link, Order, Plan

KEEP_SECONDS = 86400.0  # an unused setup is kept for this long
TOUCH_SECONDS = 600.0
PREFIX = "setup:"  # of the keys of setups' orders

DONE, ELSEWHERE, RUN = "done", "elsewhere", "run"


def key_of(body: Body) -> str:
    return "%s%d.%d" % (PREFIX, body.bag, body.inputs_version)


class Setups:
    def __init__(self, directory: str, host: str) -> None:
        self._directory = os.path.join(directory, "setups", _plain(host))
        self._locks: Dict[BodyKey, CacheLock] = {}
        self._touched: Dict[str, float] = {}

    def tree(self, body: Body) -> str:
        """The directory in which the bag's setup runs; "" if it has no setup."""
        return os.path.join(self._directory, name_of(body), "tree") if body.setup else ""

    def begin(self, body: Body) -> str:
        """DONE; ELSEWHERE if another pilot runs it (ask again soon); or RUN if this pilot must run
        it, in an empty directory. Raises OSError."""
        folder = os.path.dirname(self.tree(body))
        if self._done(folder):
            return DONE
        os.makedirs(folder, 0o700, exist_ok=True)
        claim = lock(os.path.join(folder, "lock"))
        if claim is None:
            return ELSEWHERE
        try:
            if self._done(folder):
                claim.close()
                return DONE
            remove(self.tree(body))
            os.mkdir(self.tree(body), 0o700)
        except BaseException:
            claim.close()
            raise
        self._locks[body_key(body)] = claim
        return RUN

    def plan(self, body: Body, number: int, environment: Dict[str, str], links: List[Link]) -> Plan:
        variables = dict(environment)
        variables.update(body.env)
        variables.update(COVEY_BAG=str(body.bag), COVEY_SETUP=self.tree(body))
        return Plan(number, variables, self.tree(body), links, makes=self.tree(body))

    def order(self, body: Body, number: int) -> Order:
        """The shell stops at the first command that fails, so a setup never succeeds half-made."""
        argv = ["/bin/sh", "-e", "-c", body.setup]
        return Order(key_of(body), number, argv, {}, body.setup_seconds)

    def over(self, body: Body, good: bool) -> None:
        """The setup and all processes that it started have ended."""
        claim = self._locks.pop(body_key(body), None)
        if claim is None:
            return
        try:
            if good:
                with open(os.path.join(os.path.dirname(self.tree(body)), "done"), "w"):
                    pass
        finally:
            claim.close()

    def sweep(self) -> None:
        """Remove setups that no pilot has used for a day."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return
        for name in names:
            folder = os.path.join(self._directory, name)
            if _age(folder) > KEEP_SECONDS:
                _retire(folder)

    def touch(self, body: Body) -> None:
        """Note that the setup is in use."""
        if body.setup:
            self._done(os.path.dirname(self.tree(body)))

    def close(self) -> None:
        for claim in self._locks.values():
            claim.close()
        self._locks.clear()

    def _done(self, folder: str) -> bool:
        marker = os.path.join(folder, "done")
        try:
            now = time.monotonic()
            if now - self._touched.get(folder, -TOUCH_SECONDS) >= TOUCH_SECONDS:
                os.utime(marker)
                self._touched[folder] = now
            return os.path.isdir(os.path.join(folder, "tree"))
        except OSError:
            return False


def name_of(body: Body) -> str:
    inputs = [list(item) for item in body.inputs]
    seen = [body.owner, body.setup, sorted(body.env.items()), inputs]
    digest = hashlib.sha256(json.dumps(seen).encode("utf-8")).hexdigest()
    return "%d-%s" % (body.bag, digest[:32])


def _plain(host: str) -> str:
    return "".join(each if each.isalnum() or each in "-." else "_" for each in host) or "unknown"


def _age(folder: str) -> float:
    """Seconds since the setup was last used or begun."""
    for name in ("done", "lock"):
        try:
            return time.time() - os.stat(os.path.join(folder, name)).st_mtime
        except OSError:
            continue
    return 0.0


def _retire(folder: str) -> None:
    """Remove a setup, unless a pilot is running it."""
    try:
        claim = lock(os.path.join(folder, "lock"))
        if claim is None:
            return
        try:
            remove(folder)
        finally:
            claim.close()
    except OSError:
        pass  # the next sweep tries again


def last_lines(text: bytes) -> str:
    lines: List[str] = text.decode("utf-8", "replace").strip().splitlines()
    return " | ".join(line[:300] for line in lines[-5:])


def problem_of(kind: str, message: str, stderr: bytes) -> Optional[str]:
    """The message for attempts that waited for the setup; None if it succeeded."""
    if kind == "ok":
        return None
    words = "the bag's setup failed on this host: %s" % (message or kind)
    printed = last_lines(stderr)
    return "%s: %s" % (words, printed) if printed else words
