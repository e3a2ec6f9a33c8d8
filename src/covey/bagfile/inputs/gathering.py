"""From the inputs of a draft to their files, and to the whole bag.

Paths are relative to the place where they were written (a bag file's directory, or the current
one). Inside it, a file keeps its relative path in the task's directory; a file from elsewhere is
put there under its own name. No input is ever put outside the task's directory. A path with {NAME}s
is a different file for each task: all of them are uploaded, and for up to 100,000 tasks covey
checks beforehand that each exists.
"""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from covey.bagfile.draft.draft import SCRIPT, Draft, check_names
from covey.bagfile.draft.points import values_of
from covey.bagfile.draft.rowsfile import read_rows
from covey.bagfile.draft.template import Scene, Tell, absolute_command
from covey.bagfile.format.lines import KeyPath
from covey.bagfile.format.parts import Wanted
from covey.bagfile.format.sheet import Sheet, near_files
from covey.bagfile.inputs.files import Finder, Found, fixed_folder, has_wildcards
from covey.bagfile.inputs.sources import MOST_FILES, files_of
from covey.core.errors import InvalidBag
from covey.core.record.model import BagSpec, Blob, InputSource, Placed, Rows, Segment, TaskInput
from covey.core.record.task_classes import find_needs
from covey.core.record.task_needs import BadNeed
from covey.core.values.placeholders import fill, names_of
from covey.core.values.space import Scalar, is_text, names
from covey.whoami import host

MOST_CHECKED = 100_000  # tasks whose own files are looked for one by one
MOST_OWN_FILES = 300_000  # files of single tasks: one request can name no more
MOST_SHOWN = 3  # missing files in a message


class Put(NamedTuple):
    """A file, and its path in the task's directory."""

    to: str
    file: Found
    copy: bool


class Gathered(NamedTuple):
    """A whole bag, except for the digests of its files."""

    draft: Draft
    spec: BagSpec  # with the final command; without files
    puts: tuple[Put, ...]
    urls: tuple[Placed, ...]
    task_inputs: tuple[TaskInput, ...]
    manifest: dict[str, Found]
    rows: Found | None
    sources: tuple[InputSource, ...] = ()

    @property
    def uploads(self) -> tuple[Found, ...]:
        """Each file once, the one with the rows first."""
        found = [] if self.rows is None else [self.rows]
        found += [put.file for put in self.puts]
        found += self.manifest.values()
        return tuple(dict.fromkeys(found))

    def complete(self, blobs: Mapping[Found, Blob]) -> BagSpec:
        """The whole bag, when the digests of its files are known."""

        def blob(file: Found) -> Blob:
            return Blob(blobs[file].digest, blobs[file].size, file.executable)

        rows = None
        if self.rows is not None and self.draft.rows is not None:
            rows = empty_rows(blobs[self.rows], self.draft.rows.form)
        placed = [Placed(path=put.to, blob=blob(put.file), copy=put.copy) for put in self.puts]
        return msgspec.structs.replace(
            self.spec,
            rows=rows,
            inputs=(*placed, *self.urls),
            task_inputs=self.task_inputs,
            manifest={key: blob(file) for key, file in self.manifest.items()},
            sources=self.sources,
            sources_host=host() if self.sources or self.task_inputs else "",
        )


def empty_rows(blob: Blob, form: str) -> Rows:
    """The server fills in the names and the count when it has read the file."""
    return Rows(digest=blob.digest, form=form, names=(), count=0)


def found_rows(path: str) -> Found:
    return Found(path, os.stat(path).st_size, False)


def gather(draft: Draft, tell: Tell) -> Gathered:
    """Raises InvalidBag with everything that is wrong with the inputs."""
    work = _Gathering(draft)
    if draft.script:
        work.take_script(draft.script)
    for wanted in draft.inputs:
        work.take(wanted)
    work.check_tasks()
    work.check_places()
    work.check_needs()
    draft.sheet.settle()
    scene = Scene(
        draft.here, draft.spec.chdir, frozenset(work.with_folders()), bool(draft.spec.setup)
    )
    return Gathered(
        draft,
        msgspec.structs.replace(draft.spec, argv=_command(draft, scene, tell)),
        tuple(work.puts.values()),
        tuple(work.urls.values()),
        tuple(work.task_inputs),
        work.manifest,
        None if draft.rows is None else found_rows(draft.rows.path),
        tuple(work.sources),
    )


def _command(draft: Draft, scene: Scene, tell: Tell) -> tuple[str, ...]:
    try:
        return absolute_command(draft.spec.argv, scene, tell)
    except InvalidBag as error:
        draft.sheet.complain(("command",), str(error))
        draft.sheet.settle()
        raise


class _Gathering:
    """Collects the files of one draft, and the complaints about them."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.sheet: Sheet = draft.sheet
        self.puts: dict[str, Put] = {}
        self.urls: dict[str, Placed] = {}
        self.task_inputs: list[TaskInput] = []
        self.manifest: dict[str, Found] = {}
        self.sources: list[InputSource] = []
        self.finder = Finder(MOST_FILES)
        self._own: list[tuple[KeyPath, TaskInput, str]] = []  # with their base
        self._places: dict[str, KeyPath] = {}

    def take_script(self, text: str) -> None:
        data = text.encode()
        self.put((), SCRIPT, Found("", len(data), True, data), False)
        if self.sheet.origin(("script",)).line:  # of a bag file
            path = os.path.abspath(self.sheet.name)
            self._note_source(InputSource(path=path, to=SCRIPT, script=True))

    def take(self, wanted: Wanted) -> None:
        if wanted.url:
            self._take_url(wanted)
        elif names_of(wanted.source, wanted.to):
            self._take_pattern(wanted)
        else:
            self._take_files(wanted)

    def put(self, at: KeyPath, to: str, file: Found, copy: bool) -> None:
        if not is_text(to):
            self.sheet.complain(at, f"{to}: a file's name must be text in UTF-8")
            return
        known = self.puts.get(to)
        if known is not None and known.file == file:
            return
        if known is not None or to in self.urls:
            other = known.file.path if known is not None else self.urls[to].url
            self.sheet.complain(at, f"{file.path} and {other} would both be {to}; use to = '…'")
            return
        self.puts[to] = Put(to, file, copy)
        self._places[to] = at

    def _take_url(self, wanted: Wanted) -> None:
        to = self._inside(wanted, wanted.to)
        if names_of(wanted.url, wanted.to):
            text = "a URL is fetched once for all tasks, and cannot have {NAME}s in it"
            self.sheet.complain(wanted.at, text)
        elif to in self.puts or to in self.urls:
            self.sheet.complain(wanted.at, f"another input would also be called {to}")
        elif to:
            self._places[to] = wanted.at
            self.urls[to] = Placed(
                path=to,
                url=wanted.url,
                digest=wanted.sha256,
                executable=wanted.executable,
                copy=wanted.copy,
            )

    def _take_files(self, wanted: Wanted) -> None:
        path = os.path.join(wanted.base, os.path.expanduser(wanted.source))
        to = self._inside(wanted, self._default_place(wanted, path))
        try:
            files = list(files_of(self.finder, path, to))
        except FileNotFoundError:
            self.sheet.complain(wanted.at, f"there is no file {wanted.source}{near_files(path)}")
        except InvalidBag as error:
            self.sheet.complain(wanted.at, str(error))
        else:
            if not files:
                self.sheet.complain(wanted.at, _no_file_message(wanted, path))
            self._note_source(InputSource(path=os.path.abspath(path), to=to, copy=wanted.copy))
            for place, file in files if to else ():
                self.put(wanted.at, place, file, wanted.copy)

    def _default_place(self, wanted: Wanted, path: str) -> str:
        """The path in the task's directory of a file, a directory, or the files of a pattern."""
        if has_wildcards(path) and not os.path.lexists(path):
            folder = fixed_folder(path)
            inside = _is_below(wanted.base, folder)
            return wanted.to or (os.path.relpath(folder, wanted.base) if inside else ".")
        if wanted.to.endswith("/") and not os.path.isdir(path):
            return os.path.join(wanted.to, os.path.basename(path))
        return wanted.to or _place_of(wanted.base, path)

    def _note_source(self, source: InputSource) -> None:
        if is_text(source.path):
            self.sources.append(source)

    def _file(self, at: KeyPath, path: str, written: str) -> Found | None:
        try:
            return self.finder.file(path)
        except FileNotFoundError:
            self.sheet.complain(at, f"there is no file {written}{near_files(path)}")
        except InvalidBag as error:
            self.sheet.complain(at, str(error))
        return None

    def _inside(self, wanted: Wanted, to: str) -> str:
        """The place, normalised. Complains if it is outside the task's directory."""
        place = os.path.normpath(to)
        if os.path.isabs(place) or place.split("/")[0] == ".." or to.startswith("~"):
            self.sheet.complain(wanted.at, f"{to} would be outside the task's directory")
            return ""
        return place

    def _take_pattern(self, wanted: Wanted) -> None:
        """An input that is a different file for each task."""
        known = list(self.draft.names)
        source = os.path.expanduser(wanted.source)
        good = check_names(self.sheet, wanted.at, wanted.source, known)
        good = check_names(self.sheet, wanted.at, wanted.to, known) and good
        if has_wildcards(source):
            text = f"{wanted.source} has a {{NAME}} and a wildcard; name one file for each task"
            self.sheet.complain(wanted.at, text)
        elif source.endswith("/"):
            text = f"{wanted.source} is a directory with a {{NAME}}; name one file for each task"
            self.sheet.complain(wanted.at, text)
        elif good:
            place = wanted.to or _template_place(source)
            if place.endswith("/"):
                place += os.path.basename(source)
            base = os.path.abspath(wanted.base)
            entry = TaskInput(
                source=source,
                path=self._inside(wanted, place),
                copy=wanted.copy,
                base=base if is_text(base) else "",
            )
            self.task_inputs.append(entry)
            self._own.append((wanted.at, entry, wanted.base))

    def check_tasks(self) -> None:
        """Find the files of single tasks: for a closed bag of not too many tasks exactly those,
        else all files that could be meant."""
        if not self._own or not self.sheet.faultless:
            return
        tasks = list(values_of(self.draft, MOST_CHECKED + 1))
        few = len(tasks) <= MOST_CHECKED
        for at, entry, base in self._own:
            if few:
                self._check_entry(at, entry, base, tasks)
            if not few or self.draft.spec.open:
                found = self._take_alike(at, entry, base)
                if not found and not few:
                    self.sheet.complain(at, f"no file matches {entry.source}")

    def _check_entry(
        self, at: KeyPath, entry: TaskInput, base: str, tasks: list[list[Scalar]]
    ) -> None:
        missing: dict[str, str] = {}
        for key, to, values in _filled(entry, self.draft.names, tasks):
            place = os.path.normpath(to)
            if os.path.isabs(place) or place.split("/")[0] == "..":
                text = f"{to} would be outside the task's directory; use to = '…'"
                self.sheet.complain(at, text)
                return
            if key in self.manifest or key in missing:
                continue
            try:
                self.manifest[key] = self.finder.file(os.path.join(base, key))
            except FileNotFoundError:
                missing[key] = values
            except InvalidBag as error:
                self.sheet.complain(at, str(error))
        if missing:
            self.sheet.complain(at, _missing_message(entry.source, base, missing))

    def _take_alike(self, at: KeyPath, entry: TaskInput, base: str) -> bool:
        keys = self.finder.alike(entry.source, base)
        for key in keys:
            file = self._file(at, os.path.join(base, key), key) if is_text(key) else None
            if file is not None:
                self.manifest[key] = file
        return bool(keys)

    def check_needs(self) -> None:
        """Check resources that depend on the task. If there are very many tasks, the server checks
        the rest."""
        draft = self.draft
        rows: Iterator[list[Scalar]] = iter(())
        described, prefix = None, ""
        if draft.rows is not None:
            columns = draft.names[: len(draft.names) - len(names(draft.spec.space))]
            described = Rows(digest="", form=draft.rows.form, names=columns, count=1)
            rows, prefix = read_rows(draft.rows), f"{draft.rows.written}: "
        try:
            segment = Segment(space=draft.spec.space, rows=described)
            find_needs(draft.spec, segment, rows, MOST_CHECKED)
        except BadNeed as error:
            self.sheet.complain(_place_of_need(self.sheet, error.resource), f"{prefix}{error}")
        except InvalidBag as error:
            self.sheet.complain(("resources",), str(error))

    def check_places(self) -> None:
        """No file may be where another file needs a folder, and files must not be too many."""
        for count, most in ((len(self.puts), MOST_FILES), (len(self.manifest), MOST_OWN_FILES)):
            if count > most:
                text = f"{count:,} files: at most {most:,} are allowed; pack them into an archive"
                self.sheet.complain(("inputs",), text)
        for index, (at, entry, _) in enumerate(self._own):
            others = [other.path for _, other, _ in self._own[:index]]
            if entry.path in self._places or entry.path in others:
                self.sheet.complain(at, f"another input would also be called {entry.path}")
        for place, at in self._places.items():
            folder = os.path.dirname(place)
            while folder:
                if folder in self._places:
                    self.sheet.complain(at, f"{folder} would be both a file and a folder")
                folder = os.path.dirname(folder)

    def with_folders(self) -> set[str]:
        """Inputs and their folders in the task's directory: a word of the command may name them."""
        found: set[str] = set()
        for place in [*self._places, *(entry.path for entry in self.task_inputs)]:
            while place:
                found.add(place)
                place = os.path.dirname(place)
        return found


def _place_of_need(sheet: Sheet, resource: str) -> KeyPath:
    """The key of a resource, unless a rule has it: then the table."""
    return ("resources", resource) if resource in sheet.tree["resources"] else ("resources",)


def _place_of(base: str, path: str) -> str:
    """The path relative to the base if it is below it, else the name alone."""
    if _is_below(base, path):
        return os.path.relpath(path, base)
    return os.path.basename(os.path.abspath(path)) or "."


def _no_file_message(wanted: Wanted, path: str) -> str:
    if os.path.isdir(path):
        return f"there is no file in the directory {wanted.source}"
    if not has_wildcards(wanted.source):  # but the path of the base has
        return f"there is no file {wanted.source}{near_files(path)}"
    return f"no file matches {wanted.source}"


def _is_below(base: str, path: str) -> bool:
    base = os.path.abspath(base)
    return os.path.commonpath([base, os.path.abspath(path)]) == base


def _template_place(source: str) -> str:
    """The place of a task's own file if `to` is not given."""
    place = os.path.normpath(source)
    if os.path.isabs(place) or place.split("/")[0] == "..":
        return os.path.basename(place)
    return place


def _filled(
    entry: TaskInput, names: tuple[str, ...], tasks: list[list[Scalar]]
) -> list[tuple[str, str, str]]:
    """For every task the key, the place, and the values in them; equal ones once."""
    used = [name for name in names_of(entry.source, entry.path) if name in names]
    places = [names.index(name) for name in used]
    found: dict[tuple[Scalar, ...], tuple[str, str, str]] = {}
    for values in tasks:
        picked = tuple(values[place] for place in places)
        if picked not in found:
            known = dict(zip(used, picked, strict=True))
            shown = ", ".join(f"{name}={value}" for name, value in known.items())
            found[picked] = (fill(entry.source, known), fill(entry.path, known), shown)
    return list(found.values())


def _missing_message(source: str, base: str, missing: dict[str, str]) -> str:
    shown = "; ".join(f"{values}: {key}" for key, values in list(missing.items())[:MOST_SHOWN])
    more = f" and {len(missing) - MOST_SHOWN:,} more" if len(missing) > MOST_SHOWN else ""
    hint = near_files(os.path.join(base, next(iter(missing)))) if len(missing) == 1 else ""
    return f"{source}: there is no file for {shown}{more}{hint}"
