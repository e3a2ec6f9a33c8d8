"""Compares the input files of a bag with the files on this machine, and sends those that have
changed: for `covey retry` and Python's `bag.retry`.

`--refresh` sends the files that submitting the bag now would send. If a path has no file any more,
tasks still get the files that were sent from there.
"""

import os
from pathlib import Path
from typing import NamedTuple

from covey.bagfile import GONE, Found, LocalInputs, look
from covey.bagfile.draft.draft import SCRIPT
from covey.bagfile.inputs.gathering import MOST_CHECKED
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
    """The inputs of a bag, and how the files on this machine differ from them."""

    bag: int
    view: InputsView
    changes: InputChanges
    sources: dict[Blob, Path | bytes]  # the files that the server needs for `changes`
    changed: list[str]  # names of files, for people
    added: list[str]
    removed: list[str]
    missing: list[str]
    any_here: bool  # whether at least one of the paths of the inputs has a file

    @property
    def differs(self) -> bool:
        return self.changes != NOTHING

    @property
    def elsewhere(self) -> bool:
        """Whether the bag was submitted on another machine."""
        return self.view.host != host()


def compare(client: Client, bag: BagView, *, remote: bool) -> Compared:
    """Raises BadFile, with the reason, if the inputs cannot be compared with files of this machine.
    A `remote` server gets only files whose paths we have sealed."""
    if bag.calls:
        raise BadFile(
            f"the tasks of bag {bag.id} are functions; submit it again with the new files"
        )
    view = client.inputs(bag.id)
    if not (view.inputs or view.task_inputs):
        raise BadFile(f"bag {bag.id} has no input files: its tasks read files where they are")
    if not view.sources and not any(entry.base for entry in view.task_inputs):
        raise BadFile(f"the record does not say where the input files of bag {bag.id} came from")
    paths = (view.sources, view.task_inputs, view.manifest)
    if remote and not is_sealed(view.seal, *paths):
        raise BadFile(
            f"you did not submit bag {bag.id} on this machine (it came from {view.host}), so no "
            "files are sent from here"
        )
    sent = {placed.path: placed for placed in view.inputs}
    more_keys = bag.open or bag.total > MOST_CHECKED
    local = look(view.sources, view.task_inputs, sent, view.manifest, more_keys)
    return _Comparison(bag.id, view, sent, local).result()


class _Comparison:
    """The comparison of one bag's inputs, while it is made."""

    def __init__(
        self, bag: int, view: InputsView, sent: dict[str, Placed], local: LocalInputs
    ) -> None:
        self._bag, self._view, self._sent, self._local = bag, view, sent, local
        self._digests = Digests()
        self._sources: dict[Blob, Path | bytes] = {}
        self._missing = {shown(path): why for path, why in local.missing.items()}
        self._changed: list[str] = []
        self._added: list[str] = []

    def result(self) -> Compared:
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
        changed = []
        for place, (file, copy) in self._local.files.items():
            sent = self._sent.get(place)
            if sent is None or sent.blob is not None:  # without a blob, the input is a URL
                blob = self._new_blob(file, place, None if sent is None else sent.blob)
                if blob is not None:
                    changed.append(Placed(path=place, blob=blob, copy=copy))
        return tuple(changed)

    def _manifest(self) -> dict[str, Blob]:
        changed = {}
        for key, file in self._local.own.items():
            blob = self._new_blob(file, key, self._view.manifest.get(key))
            if blob is not None:
                changed[key] = blob
        return changed

    def _new_blob(self, file: Found, place: str, sent: Blob | None) -> Blob | None:
        """The blob of the file as it is now; None if it is the one that was sent."""
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
    """The path as a person in this directory would write it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("../") else relative


def check_here(compared: Compared) -> None:
    """Raises BadFile if none of the input files is on this machine."""
    if not compared.any_here:
        raise BadFile(
            f"none of the input files of bag {compared.bag} is here: it was submitted on "
            f"{compared.view.host}, with {listed(compared.missing)}"
        )


def differences(compared: Compared) -> str:
    """Such as: fit.py has changed; a.csv, b.csv are new."""
    parts = []
    for names, one, several in (
        (compared.changed, "has changed", "have changed"),
        (compared.added, "is new", "are new"),
        (compared.removed, "is gone", "are gone"),
    ):
        if names:
            parts.append(f"{listed(names)} {one if len(names) == 1 else several}")
    return "; ".join(parts)


def listed(names: list[str]) -> str:
    return formats.some(names[:FEW], len(names))


def notes(compared: Compared, how: str) -> list[str]:
    """What to tell a person when tasks run again with the old files. `how` is the command that
    sends the new files."""
    if not compared.any_here and compared.elsewhere:
        return []  # the person does not expect the files to be here
    lines = []
    if compared.differs:
        number = compared.view.version
        first = f"bag {compared.bag} was submitted"
        since = first if number == 1 else f"version {number} was sent"
        where = f" on {compared.view.host}" if compared.elsewhere else ""
        lines.append(
            f"since {since}{where}, {differences(compared)}. The tasks run with the files that "
            f"were sent then. To run them with the files as they are now: {how}"
        )
    if compared.missing:
        lines.append(gone(compared))
    return lines


def gone(compared: Compared) -> str:
    they = "is not here any more: the tasks get it as it was sent"
    if len(compared.missing) > 1:
        they = "are not here any more: the tasks get them as they were sent"
    return f"{listed(compared.missing)} {they}"


class RetryFiles:
    """The input files of a bag whose tasks run again."""

    def __init__(self, client: Client, bag: BagView, remote: bool, refresh: bool) -> None:
        """Raises BadFile if `refresh` is asked for and the files cannot be refreshed."""
        self._client = client
        self._refresh = refresh
        self._compared: Compared | None = None
        try:
            self._compared = compare(client, bag, remote=remote)
        except BadFile:
            if refresh:
                raise
        if refresh and self._compared is not None:
            check_here(self._compared)

    @property
    def _sent(self) -> bool:
        return self._refresh and self._compared is not None and self._compared.differs

    def send(self) -> InputChanges | None:
        """Upload the changed files and return the changes; None if there is nothing to send."""
        if not self._sent or self._compared is None:
            return None
        upload_known(self._client, self._compared.sources)
        return self._compared.changes

    def notes(self, how: str) -> list[str]:
        """What to tell a person afterwards. `how` is the command that sends changed files."""
        if self._compared is None:
            return []
        if self._refresh:
            return [gone(self._compared)] if self._compared.missing else []
        return notes(self._compared, how)

    def words(self) -> str:
        """The end of the sentence about the tasks that run again."""
        if not self._refresh or self._compared is None:
            return ""
        if not self._compared.differs:
            return "; its input files have not changed"
        version = self._compared.view.version + 1
        return f" with version {version} of its inputs: {differences(self._compared)}"

    def fields(self) -> dict[str, object]:
        """The changed files and the version of the inputs, for JSON."""
        if self._compared is None:
            return {}
        return {
            "changed_inputs": [
                *self._compared.changed,
                *self._compared.added,
                *self._compared.removed,
            ],
            "inputs_version": self._compared.view.version + int(self._sent),
        }
