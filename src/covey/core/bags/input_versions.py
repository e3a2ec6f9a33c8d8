"""Versions of a bag's input files.

A retry can bring changed files: they are the next version, which every later attempt gets, of any
task. An attempt that was sent before keeps its version.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from covey.core.bags import bag_check
from covey.core.errors import InvalidBag
from covey.core.protocol import bag_bodies
from covey.core.protocol.task_recall import recall
from covey.core.record.actions import SaveInputVersion
from covey.core.record.input_files import version_of, with_changes
from covey.core.record.model import AttemptId, BagSpec, InputChanges, InputVersion, Placed
from covey.core.state import Bag
from covey.core.turn import Turn
from covey.pilot.protocol.messages import Input

MOST_VERSIONS = 1000  # of one bag
MOST_CHANGED = bag_check.MOST_MANIFEST  # files, in all versions of a bag
FEW_NAMES = 5
LONGEST_NAME = 200  # characters


def version_in(bag: Bag, attempt: AttemptId) -> int:
    """The version of the input files that this attempt of the bag was sent with."""
    return version_of([version.first for version in bag.inputs.versions], attempt)


def sent_as(inputs: Sequence[Placed]) -> list[Input]:
    """The inputs as a message to pilots."""
    return [_input(placed) for placed in inputs]


def _input(placed: Placed) -> Input:
    blob = placed.blob
    if blob is None:
        return Input(placed.path, placed.digest, 0, placed.executable, placed.copy, placed.url)
    return Input(placed.path, blob.digest, blob.size, blob.executable, placed.copy)


def wanted(bag: Bag, changes: InputChanges | None) -> InputChanges | None:
    """The part of these changes that the bag does not have yet, or None: a repeated request makes
    no second version. Raises InvalidBag if the bag cannot have these files."""
    new = InputChanges() if changes is None else _only_new(bag.spec, changes)
    if not _count(new):
        return None
    _check(bag, new)
    return new


def _only_new(spec: BagSpec, changes: InputChanges) -> InputChanges:
    known = {placed.path: placed for placed in spec.inputs}
    return InputChanges(
        inputs=tuple(placed for placed in changes.inputs if known.get(placed.path) != placed),
        removed=tuple(path for path in dict.fromkeys(changes.removed) if path in known),
        manifest={
            key: blob for key, blob in changes.manifest.items() if spec.manifest.get(key) != blob
        },
        sources_seal=changes.sources_seal,
    )


def _check(bag: Bag, changes: InputChanges) -> None:
    if bag.spec.calls:
        raise InvalidBag(f"bag {bag.id} is a bag of calls: submit it again with the new files")
    if len(bag.inputs.versions) >= MOST_VERSIONS - 1:
        raise InvalidBag(
            f"bag {bag.id} has had {MOST_VERSIONS:,} versions of its inputs: submit it again"
        )
    before = sum(version.files for version in bag.inputs.versions)
    if before + _count(changes) > MOST_CHANGED:
        raise InvalidBag(
            f"bag {bag.id} would have more than {MOST_CHANGED:,} changed files: submit it again"
        )
    if changes.manifest and not bag.spec.task_inputs:
        raise InvalidBag(f"bag {bag.id} has no inputs of single tasks")
    if len(changes.sources_seal) > bag_check.MOST_SHORT_TEXT:
        raise InvalidBag("the seal of its sources is too long")
    inputs, manifest = changes.inputs, changes.manifest
    bag_check.check_files(replace(bag.spec, inputs=inputs, manifest=manifest, sources=()))
    bag_check.check_files_count(
        len({placed.path for placed in (*bag.spec.inputs, *inputs)}),
        len(bag.spec.manifest.keys() | manifest.keys()),
    )


def begin(turn: Turn, bag: Bag, changes: InputChanges) -> None:
    """From now on attempts get these files. Attempts that have not started are recalled, so that
    their tasks get these files, too."""
    names = [
        *(placed.path for placed in changes.inputs),
        *changes.removed,
        *changes.manifest,
    ]
    version = InputVersion(
        first=AttemptId(turn.state.epoch, turn.state.counters.next_sequence),
        at=turn.now,
        files=_count(changes),
        names=tuple(name[:LONGEST_NAME] for name in names[:FEW_NAMES]),
        changes=changes,
    )
    turn.write(SaveInputVersion(bag.id, version))
    bag.spec, replaced = with_changes(bag.spec, [changes])
    bag.inputs.earlier |= replaced
    bag.inputs.versions.append(version)
    number = 1 + len(bag.inputs.versions)
    inputs = sent_as(bag.spec.inputs)
    bag_bodies.change(bag, bag.body._replace(inputs=inputs, inputs_version=number))
    for pilot in turn.state.pilots.values():
        pilot.bodies.pop(bag.id, None)
    for attempts in bag.places.live.values():
        for attempt in attempts:
            recall(turn, attempt)


def _count(changes: InputChanges) -> int:
    return len(changes.inputs) + len(changes.removed) + len(changes.manifest)
