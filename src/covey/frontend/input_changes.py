"""Whether the input files of a bag have changed on this machine since they were sent, and what to
send in their place: for `covey retry` and Python's `bag.retry`.

`--refresh` sends what submitting the bag now would send. But a path that leads to no file any more
keeps the files that were sent from there.
"""

import os
from pathlib import Path
from typing import NamedTuple

from covey.bagfile import GONE, Found, LocalInputs, look
from covey.bagfile.draft import SCRIPT
from covey.bagfile.gathering import MOST_CHECKED
from covey.client.client import Client
from covey.client.digests import Digests
from covey.client.source_seal import is_sealed, seal
from covey.client.upload import describe
from covey.core.errors import BadFile
from covey.core.record.model import Blob, InputChanges, Placed
from covey.frontend import formats
from covey.frontend.submitting import upload_known
from covey.whoami import host
from covey.wire import BagView, InputsView

FEW = 3
NOTHING = InputChanges()


class Compared(NamedTuple):
    """The inputs of a bag, and how the files on this machine differ from them. `sources` has the
    files that the server needs for the `changes`."""

    bag: int
    view: InputsView
    changes: InputChanges
    sources: dict[Blob, Path | bytes]
    changed: list[str]  # files, as people name them
    added: list[str]
    removed: list[str]
    missing: list[str]
    any_here: bool  # at least one of the paths that the inputs came from leads to a file

    @property
    def differs(self) -> bool:
        return self.changes != NOTHING

    @property
    def elsewhere(self) -> bool:
        """Whether the bag was submitted on another machine."""
        return self.view.host != host()


def compare(client: Client, bag: BagView, *, remote: bool) -> Compared:
    """Raises BadFile, with the reason, if its inputs have nothing to do with files of this machine.
    To a server elsewhere (`remote`) only files are sent whose paths we have sealed."""
    if bag.calls:
        raise BadFile(f"bag {bag.id} is of functions; submit it again with the new files")
    view = client.inputs(bag.id)
    if not (view.inputs or view.task_inputs):
        raise BadFile(f"bag {bag.id} has no input files: its tasks read files where they are")
    if not view.sources and not any(entry.base for entry in view.task_inputs):
        raise BadFile(f"it is not known where the input files of bag {bag.id} came from")
    paths = (view.sources, view.task_inputs, view.manifest)
    if remote and not is_sealed(view.seal, *paths):
        raise BadFile(
            f"bag {bag.id} was not submitted by you on this machine (but on {view.host}), so no "
            "files are sent from here"
        )
    sent = {placed.path: placed for placed in view.inputs}
    more_keys = bag.open or bag.total > MOST_CHECKED
    local = look(view.sources, view.task_inputs, sent, view.manifest, more_keys)
    return _Comparing(bag.id, view, sent, local).done()


class _Comparing:
    """The work on one bag."""

    def __init__(
        self, bag: int, view: InputsView, sent: dict[str, Placed], local: LocalInputs
    ) -> None:
        self._bag, self._view, self._sent, self._local = bag, view, sent, local
        self._digests = Digests()
        self._sources: dict[Blob, Path | bytes] = {}
        self._missing = {shown(path): why for path, why in local.missing.items()}
        self._changed: list[str] = []
        self._added: list[str] = []

    def done(self) -> Compared:
        view, inputs, manifest = self._view, self._inputs(), self._manifest()
        self._digests.save()
        new_keys = manifest.keys() - view.manifest.keys()
        keys = {*view.manifest, *new_keys}
        removed = self._local.emptied
        missing = [f"{name}: {why}" if why != GONE else name for name, why in self._missing.items()]
        return Compared(
            self._bag,
            view,
            InputChanges(
                inputs=inputs,
                removed=removed,
                manifest=manifest,
                sources_seal=seal(view.sources, view.task_inputs, keys) if new_keys else "",
            ),
            self._sources,
            self._changed,
            self._added,
            list(removed),
            missing,
            bool(self._local.files or self._local.own),
        )

    def _inputs(self) -> tuple[Placed, ...]:
        found = []
        for place, (file, copy) in self._local.files.items():
            known = self._sent.get(place)
            if known is None or known.blob is not None:  # else a URL has taken its place
                blob = self._other(file, place, None if known is None else known.blob)
                if blob is not None:
                    found.append(Placed(path=place, blob=blob, copy=copy))
        return tuple(found)

    def _manifest(self) -> dict[str, Blob]:
        found = {}
        for key, file in self._local.own.items():
            blob = self._other(file, key, self._view.manifest.get(key))
            if blob is not None:
                found[key] = blob
        return found

    def _other(self, file: Found, place: str, sent: Blob | None) -> Blob | None:
        """The file as it is now, if it is another one than was sent."""
        source = file.data or Path(file.path)
        name = "the script" if place == SCRIPT else shown(file.path)
        try:
            blob = describe(source, self._digests)
        except BadFile as error:
            self._missing[name] = str(error)
            return None
        blob = Blob(blob.digest, blob.size, file.executable)
        if blob == sent:
            return None
        self._sources[blob] = source
        (self._added if sent is None else self._changed).append(name)
        return blob


def shown(path: str) -> str:
    """As a person here would name this file."""
    relative = os.path.relpath(path)
    return path if relative.startswith("../") else relative


def check_here(found: Compared) -> None:
    """Raises BadFile if there is nothing that could be sent in place of what was sent."""
    if not found.any_here:
        raise BadFile(
            f"none of the input files of bag {found.bag} is here: it was submitted on "
            f"{found.view.host}, with {listed(found.missing)}"
        )


def differences(found: Compared) -> str:
    """fit.py has changed; a.csv and b.csv are new"""
    parts = []
    for names, one, several in (
        (found.changed, "has changed", "have changed"),
        (found.added, "is new", "are new"),
        (found.removed, "is gone", "are gone"),
    ):
        if names:
            parts.append(f"{listed(names)} {one if len(names) == 1 else several}")
    return "; ".join(parts)


def listed(names: list[str]) -> str:
    return formats.some(names[:FEW], len(names))


def notes(found: Compared, how: str) -> list[str]:
    """What to say when tasks run again with the old files. `how` is the option that sends the new
    files."""
    if not found.any_here and found.elsewhere:
        return []  # nobody expects the files here
    lines = []
    if found.differs:
        number = found.view.version
        since = f"bag {found.bag} was submitted" if number == 1 else f"version {number} was sent"
        where = f" on {found.view.host}" if found.elsewhere else ""
        lines.append(
            f"since {since}{where}, {differences(found)}. The tasks run with the files that were "
            f"sent then. To run them with the files as they are now: {how}"
        )
    if found.missing:
        lines.append(gone(found))
    return lines


def gone(found: Compared) -> str:
    they = "is not here any more: the tasks get it as it was sent"
    if len(found.missing) > 1:
        they = "are not here any more: the tasks get them as they were sent"
    return f"{listed(found.missing)} {they}"


class RetryFiles:
    """The input files of a bag whose tasks run again, as `covey retry` deals with them."""

    def __init__(self, client: Client, bag: BagView, remote: bool, refresh: bool) -> None:
        """Raises BadFile if they cannot be refreshed, and should be."""
        self._client = client
        self._refresh = refresh
        self._found: Compared | None = None
        try:
            self._found = compare(client, bag, remote=remote)
        except BadFile:
            if refresh:
                raise
        if refresh and self._found is not None:
            check_here(self._found)

    @property
    def _sent(self) -> bool:
        return self._refresh and self._found is not None and self._found.differs

    def send(self) -> InputChanges | None:
        """Those that have changed, if they are to be sent: they are at the server then."""
        if not self._sent or self._found is None:
            return None
        upload_known(self._client, self._found.sources)
        return self._found.changes

    def notes(self, how: str) -> list[str]:
        """What a person should know afterwards; `how` they have changed files sent."""
        if self._found is None:
            return []
        if self._refresh:
            return [gone(self._found)] if self._found.missing else []
        return notes(self._found, how)

    def words(self) -> str:
        """What is said of them together with the tasks that run again."""
        if not self._refresh or self._found is None:
            return ""
        if not self._found.differs:
            return "; its input files have not changed"
        version = self._found.view.version + 1
        return f" with version {version} of its inputs: {differences(self._found)}"

    def fields(self) -> dict[str, object]:
        """The same, for programs."""
        if self._found is None:
            return {}
        return {
            "changed_inputs": [*self._found.changed, *self._found.added, *self._found.removed],
            "inputs_version": self._found.view.version + int(self._sent),
        }
