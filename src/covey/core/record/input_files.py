"""The input files of a bag in their versions, as records.

The first version came with the bag; `input_versions` says when another one begins. Ids of attempts
grow, so a version remembers only the first attempt that got it: that tells the version of every
attempt, also after a restart.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from covey.core.record.model import BagSpec, InputChanges, InputVersion

FEW_PATHS = 10
LAST_VERSIONS = 10


class InputVersionView(Struct, frozen=True, kw_only=True):
    """Files that later attempts of a bag got instead of those of the version before: how many
    differ, and a few of their names. Version 1 is what the bag was submitted with."""

    version: int
    at: float
    files: int
    names: list[str]


class InputSummary(Struct, frozen=True, kw_only=True):
    """Where the input files of a bag came from: paths on the machine `host`, the first few of
    `count`. `versions` are the last few of those after the first."""

    host: str = ""
    paths: list[str] = []
    count: int = 0
    versions: list[InputVersionView] = []


def version_of(firsts: Sequence[tuple[int, int]], attempt: tuple[int, int]) -> int:
    """The version that an attempt got; `firsts` are the first attempts of version 2, 3, …"""
    return 1 + bisect_right(firsts, attempt) if firsts else 1


def with_changes(spec: BagSpec, every: Iterable[InputChanges]) -> tuple[BagSpec, set[str]]:
    """The same bag with these changes of its files, in this order, and the digests of the files
    that they replace. All changes at once, since there may be many files, and many changes."""
    inputs = {placed.path: placed for placed in spec.inputs}
    manifest = dict(spec.manifest)
    seal, replaced = spec.sources_seal, set[str]()
    for changes in every:
        gone = [inputs.get(placed.path) for placed in changes.inputs]
        inputs.update((placed.path, placed) for placed in changes.inputs)
        gone += [inputs.pop(path, None) for path in changes.removed]
        replaced.update(old.blob.digest for old in gone if old is not None and old.blob is not None)
        replaced.update(manifest[key].digest for key in changes.manifest if key in manifest)
        manifest.update(changes.manifest)
        seal = changes.sources_seal or seal
    files = tuple(inputs.values())
    return replace(spec, inputs=files, manifest=manifest, sources_seal=seal), replaced


def digests_in(files: BagSpec | InputChanges) -> Iterator[str]:
    """The digests of the input files that a bag, or a change of its files, names."""
    yield from (placed.blob.digest for placed in files.inputs if placed.blob is not None)
    yield from (blob.digest for blob in files.manifest.values())


def view_of(version: int, kept: InputVersion) -> InputVersionView:
    return InputVersionView(version=version, at=kept.at, files=kept.files, names=list(kept.names))


def views_of(versions: Sequence[InputVersion]) -> list[InputVersionView]:
    return [view_of(number, kept) for number, kept in enumerate(versions, 2)]


def summary(spec: BagSpec, versions: list[InputVersionView]) -> InputSummary:
    own = [task_input for task_input in spec.task_inputs if task_input.base]
    paths = [source.path for source in spec.sources[:FEW_PATHS]]
    paths += [
        str(PurePosixPath(input_.base, input_.source)) for input_ in own[: FEW_PATHS - len(paths)]
    ]
    return InputSummary(
        host=spec.sources_host,
        paths=paths,
        count=len(spec.sources) + len(own),
        versions=versions[-LAST_VERSIONS:],
    )
