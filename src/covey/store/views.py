"""Parts of views that only a bag's spec decides."""

from covey.core.model import BagSpec
from covey.wire import ClassView


def class_views(spec: BagSpec) -> list[ClassView]:
    """By class: what is said for all tasks comes first, then what each rule says."""
    return [
        ClassView(
            cores=need.cores,
            memory_mb=need.memory_mb,
            disk_mb=need.disk_mb,
            gpus=need.gpus,
            limit_seconds=need.limit_seconds,
        )
        for need in (spec.need, *(rule.need for rule in spec.rules))
    ]
