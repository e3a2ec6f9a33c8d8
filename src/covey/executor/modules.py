"""The program's modules that are sent to its workers, as files inside the worker's own file.

By default these are the modules beside the program: those that it has imported from its own folder
when the bag is opened, and those that their source imports from that folder. With a list, they are
the modules of that list. Only Python source is sent, and not more than MOST_BYTES of it.

If a host has exactly the same files at the client's path, it imports those (`covey.worker.main`).
"""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from covey.core.errors import InvalidBag

MOST_BYTES = 10 << 20
MOST_FILES = 1000
_SOURCE = ".py"
_STATEMENT_END = re.compile(r"[;:\n]")

Wanted = Iterable[str | os.PathLike[str] | ModuleType]
Stamp = tuple[int, int]


class TooMuch(InvalidBag):
    """The modules are too large to be sent with every worker."""


class Modules:
    """Searched again whenever a bag is opened: see `read`."""

    def __init__(self, wanted: Wanted | None) -> None:
        """None: those beside the program. Raises InvalidBag for a module that cannot be found."""
        self._folder = _program_folder() if wanted is None else None
        self._named = [_located(module) for module in wanted] if wanted is not None else []

    def read(self) -> "Read":
        """Raises TooMuch if a list of modules is too large. Of the modules beside the program,
        those that do not fit are left out and are named in `left_out`."""
        modules = Read()
        for root in self._named:
            modules.add(root)
        if self._folder is not None:
            for root in _beside(self._folder):
                try:
                    modules.add(root)
                except TooMuch:
                    modules.left_out.append(root.name)
        return modules


class Read:
    """The content of modules, and the stamps of their files when they were read."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}  # by the path below a folder of sys.path
        self.left_out: list[str] = []
        self._stamps: dict[str, Stamp] = {}
        self._bytes = 0

    def add(self, root: Path) -> None:
        """Add a module's file or a package's folder: all of it or nothing. Raises TooMuch."""
        files: dict[str, bytes] = {}
        stamps: dict[str, Stamp] = {}
        size = self._bytes
        for path in _sources(root):
            stamp = _stamp(path)
            size += stamp[1]
            if size > MOST_BYTES or len(self.files) + len(files) >= MOST_FILES:
                raise TooMuch(
                    f"modules: {root} does not fit: at most {MOST_BYTES >> 20} MB of source in "
                    f"{MOST_FILES:,} files are sent with a worker. Install it on the hosts instead"
                )
            files[str(path.relative_to(root.parent))] = path.read_bytes()
            stamps[str(path)] = stamp
        self.files |= files
        self._stamps |= stamps
        self._bytes = size

    def names(self) -> list[str]:
        """The names of the modules, as they are imported."""
        return [_module_name(path) for path in self.files]

    def changed(self) -> str:
        """A file that has changed since it was read; empty if none has."""
        return next((path for path, stamp in self._stamps.items() if _stamp(path) != stamp), "")


def _program_folder() -> Path | None:
    """The folder of the program; in a notebook or a shell, the one where it was started."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    started_by_name = getattr(main, "__spec__", None) is not None  # python -m
    folder = Path(os.path.abspath(file)).parent if file and not started_by_name else Path.cwd()
    prefixes = {Path(sys.prefix), Path(sys.base_prefix)}
    return None if any(folder.is_relative_to(prefix) for prefix in prefixes) else folder


def _beside(folder: Path) -> list[Path]:
    """Modules and packages in this folder that are imported, or that their source imports."""
    roots: dict[str, Path] = {}
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    names = {name.partition(".")[0] for name in list(sys.modules) if _lies_in(folder, name)}
    if main and Path(os.path.abspath(main)).parent == folder:
        names |= _imports(Path(os.path.abspath(main)))
    while names:
        name = min(names)
        names.discard(name)
        root = _root(folder, name)
        if root is None or name in roots or name in sys.stdlib_module_names:
            continue
        roots[name] = root
        for path in _some(_sources(root)):
            names |= _imports(path)
    return list(roots.values())


def _some(paths: Iterable[Path]) -> Iterator[Path]:
    """Only as many as can be sent."""
    size = 0
    for number, path in enumerate(paths):
        size += _stamp(path)[1]
        if number >= MOST_FILES or size > MOST_BYTES:
            return
        yield path


def _lies_in(folder: Path, name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and Path(os.path.abspath(file)).is_relative_to(folder)


def _root(folder: Path, name: str) -> Path | None:
    """The file of the module, or the folder of the package."""
    if (folder / name / "__init__.py").is_file():
        return folder / name
    if (folder / (name + _SOURCE)).is_file():
        return folder / (name + _SOURCE)
    is_namespace = name in sys.modules and (folder / name).is_dir()
    return folder / name if is_namespace else None


def _imports(path: Path) -> set[str]:
    """The first parts of all names that a source file imports, also inside its functions.

    The text is searched, not parsed: up to Python 3.12 two threads that use `ast` at the same time
    may both fail, and the other one may be the program's. A line of a docstring that looks like an
    import does no harm: only names of files in the program's folder are used.
    """
    try:
        text = path.read_text(errors="replace").replace("\\\n", " ")
    except OSError:
        return set()
    imported: set[str] = set()
    for statement in _STATEMENT_END.split(text):
        match statement.split(None, 1):
            case ["import", names]:
                listed = names.partition("#")[0].split(",")
                imported |= {name.split(None, 1)[0] for name in listed if name.strip()}
            case ["from", names]:
                imported.add(names.split(None, 1)[0])
            case _:
                pass
    return {name.partition(".")[0] for name in imported} - {""}


def _sources(root: Path) -> Iterator[Path]:
    """All source files of a module or package; links out of it are not followed."""
    if root.is_file():
        yield root
        return
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(sub for sub in folders if sub.isidentifier() and sub != "__pycache__")
        for name in sorted(files):
            path = Path(folder, name)
            if name.endswith(_SOURCE) and path.is_file():
                yield path


def _located(wanted: object) -> Path:
    """The file or folder of a module, which is given as an object, a name or a path."""
    if isinstance(wanted, ModuleType):
        wanted = wanted.__name__
    text = os.fspath(wanted) if isinstance(wanted, str | os.PathLike) else ""
    if not isinstance(text, str) or not text:
        raise InvalidBag(f"modules: {wanted!r:.60} is not a module, a name or a path")
    if os.sep in text or text.endswith(_SOURCE):
        path = Path(os.path.abspath(text))
        if path.is_dir() or (path.is_file() and path.suffix == _SOURCE):
            return path
        raise InvalidBag(f"modules: there is no Python file or folder {text}")
    top = text.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if places:
        return Path(os.path.abspath(places[0]))
    if spec is not None and spec.origin and spec.origin.endswith(_SOURCE):
        return Path(os.path.abspath(spec.origin))
    raise InvalidBag(f"modules: there is no module {top!r} with Python source")


def _module_name(path: str) -> str:
    name = path.removesuffix(_SOURCE).replace(os.sep, ".")
    return name.removesuffix(".__init__")


def _stamp(path: str | Path) -> Stamp:
    try:
        about = os.stat(path)
    except OSError:
        return 0, 0
    return about.st_mtime_ns, about.st_size
