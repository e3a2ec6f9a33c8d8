"""Views, and parts of views, that follow from a bag's spec."""

from collections.abc import Iterable, Sequence

from msgspec.structs import asdict

from covey.core.record.input_files import views_of, with_changes
from covey.core.record.model import BagSpec, BagStatus, InputVersion, OutputSummary, Segment
from covey.core.record.task_classes import needs_of
from covey.wire import ClassView, InputsView

MOST_IGNORED = 3  # reasons why results were ignored that a view names


def class_views(spec: BagSpec, more: Iterable[Segment] = ()) -> list[ClassView]:
    """One view for each class: first the needs of tasks without a rule, then those of each rule. If
    needs depend on parameters, all needs that tasks have. `more`: the appended segments."""
    return [ClassView(**asdict(need)) for need in needs_of(spec, more)]


def is_silent(calls: bool, chdir: str, status: str, done: int, outputs: OutputSummary) -> bool:
    """Whether the tasks of a finished bag wrote nothing at all. Calls return values instead, and
    with chdir, files stay in the owner's directory."""
    return status == BagStatus.FINISHED and done > 0 and not (calls or chdir or outputs.something)


def inputs_view(spec: BagSpec, versions: Sequence[InputVersion]) -> InputsView:
    """The input files as they are now."""
    spec, _ = with_changes(spec, (version.changes for version in versions))
    return InputsView(
        version=1 + len(versions),
        versions=views_of(versions),
        host=spec.sources_host,
        seal=spec.sources_seal,
        sources=list(spec.sources),
        inputs=list(spec.inputs),
        task_inputs=list(spec.task_inputs),
        manifest=spec.manifest,
    )
