"""The share of one owner in something limited: a part of what the other owners have left.

So there is always something left for the next owner.
"""

HALF = 0.5


def owner_share(total: int, others: int, part: float = HALF) -> int:
    """The most that one owner may hold when all others hold `others`: at least one, if any is
    left."""
    left = total - others
    return max(int(left * part), min(left, 1))
