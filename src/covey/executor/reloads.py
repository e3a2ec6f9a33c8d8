"""Notices modules that were imported again since a bag was opened: its workers have the old ones.

Python asks every finder in `sys.meta_path` where a module is before it loads it, and passes the
module itself if it is loaded already (`importlib.reload`, IPython's autoreload). Our finder never
finds anything; it only counts.
"""

import sys
from collections.abc import Iterable
from types import ModuleType


class Reloads:
    count = 0  # of modules that were loaded again

    def __init__(self) -> None:
        self._travelled: set[str] = set()

    def watch(self, names: Iterable[str]) -> None:
        """If these modules are imported from now on, they were removed from `sys.modules`."""
        self._travelled.update(name for name in names if name in sys.modules)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> None:
        if target is not None or name in self._travelled:
            self.count += 1
            self._travelled.discard(name)


reloads = Reloads()
