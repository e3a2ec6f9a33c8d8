"""Input files of a bag's tasks (`input_versions`), and what came of its outputs."""

from msgspec import Struct, field

from covey.core.record.model import InputVersion, OutputSummary
from covey.core.values.placeholders import Fill


class BagInputs(Struct, eq=False):
    filled: list[tuple[Fill, Fill, bool]]  # inputs of each task's own: source, path, copy
    size: int = 0  # characters that its own inputs take in the message of a task, without values
    large: bool = False  # some calls of the bag are in files
    versions: list[InputVersion] = field(default_factory=list)  # those after the first
    earlier: frozenset[str] = frozenset()  # files that earlier versions named

    def check(self) -> None:
        firsts = [version.first for version in self.versions]
        assert firsts == sorted(firsts), "versions are not in the order of their attempts"


class BagOutputs(Struct, eq=False):
    summary: OutputSummary = OutputSummary()  # `output_summary` keeps it
    unsaved: bool = False
