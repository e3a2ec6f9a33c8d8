"""How much of something that is bounded one owner may have: a part of what the others have left.

So the next owner always finds some, however much the first one takes.
"""

HALF = 0.5


def owner_share(total: int, others: int, part: float = HALF) -> int:
    """What one owner may hold in all, when the others hold so much: at least one, if any is
    left."""
    left = total - others
    return max(int(left * part), min(left, 1))
