"""Whether modules were imported again since a bag was opened: then its workers have old ones.

Python asks every finder in `sys.meta_path` where a module is before it loads it, and names the
module itself if that is loaded already (`importlib.reload`, IPython's autoreload). Our finder never
finds anything, and counts.
"""

import sys
from collections.abc import Iterable
from types import ModuleType


class Reloads:
    count = 0  # of modules that were loaded again

    def __init__(self) -> None:
        self._travelled: set[str] = set()

    def watch(self, names: Iterable[str]) -> None:
        """From now on, if these modules are imported, they were removed from `sys.modules`."""
        self._travelled.update(name for name in names if name in sys.modules)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> None:
        if target is not None or name in self._travelled:
            self.count += 1
            self._travelled.discard(name)


reloads = Reloads()
