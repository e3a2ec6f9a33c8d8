"""What a batch system says of itself: how much there is, how much of it is free, who waits."""

from msgspec import Struct

LARGEST = 10**9


class SiteCapacity(Struct, frozen=True, kw_only=True):
    """None: it does not say. Numbers that make no sense are not believed (`believed`)."""

    free_cores: int | None = None
    total_cores: int | None = None
    free_nodes: int | None = None
    total_nodes: int | None = None
    queue_length: int | None = None  # jobs of everybody that wait there


def believed(capacity: SiteCapacity) -> SiteCapacity:
    """Without numbers that cannot be: negative ones, huge ones, and more that is free than there
    is."""
    numbers = {
        name: value if value is not None and 0 <= value <= LARGEST else None
        for name in SiteCapacity.__struct_fields__
        for value in (getattr(capacity, name),)
    }
    for unit in ("cores", "nodes"):
        free, total = numbers[f"free_{unit}"], numbers[f"total_{unit}"]
        if free is not None and total is not None and free > total:
            numbers[f"free_{unit}"] = None
    return SiteCapacity(**numbers)
