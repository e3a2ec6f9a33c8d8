"""Summary of a bag's outputs: whether there are any, and which files were not kept.

The rule: only results count, so each task is counted once. The sum is saved in the turn that
changes it, before the end of the bag.
"""

from covey.core.record.actions import SaveOutputSummary
from covey.core.record.model import OutputSummary, UnkeptFiles
from covey.core.state import Bag
from covey.core.turn import Turn
from covey.pilot.protocol.messages import LARGEST, End

MOST_NAMES = 5


def add(turn: Turn, bag: Bag, end: End) -> None:
    """Add the outputs of one more task of the bag, which ended well."""
    before = bag.outputs.summary
    something = before.something or bool(
        end.stdout_bytes or end.stderr_bytes or end.result or end.files
    )
    if end.unkept is None and something == before.something:
        return
    unkept = before.unkept
    if end.unkept is not None:
        names = dict.fromkeys((*unkept.names, *end.unkept.names))
        unkept = UnkeptFiles(
            tasks=unkept.tasks + 1,
            files=min(unkept.files + end.unkept.files, LARGEST),
            bytes=min(unkept.bytes + end.unkept.bytes, LARGEST),
            names=tuple(names)[:MOST_NAMES],
        )
    _change(turn, bag, OutputSummary(something=something, unkept=unkept))


def forget_unkept(turn: Turn, bag: Bag) -> None:
    """Tasks that were done run again: the count begins anew."""
    if bag.outputs.summary.unkept != UnkeptFiles():
        _change(turn, bag, OutputSummary(something=bag.outputs.summary.something))


def _change(turn: Turn, bag: Bag, summary: OutputSummary) -> None:
    bag.outputs.summary = summary
    if not bag.outputs.unsaved:
        bag.outputs.unsaved = True
        turn.write_last(lambda: _save(bag))


def _save(bag: Bag) -> SaveOutputSummary:
    bag.outputs.unsaved = False
    return SaveOutputSummary(bag.id, bag.outputs.summary)
