"""Attempts that the server has given to this pilot and that have not ended."""

from covey.pilot.protocol.messages import Body, Task


class Holding:
    """An attempt that this pilot holds."""

    __slots__ = ("bare", "body", "epoch", "fetched", "receipt", "started", "task", "weight")

    def __init__(
        self,
        epoch: int,
        body: Body,
        task: Task,
        fetched: float,
        weight: int,
        bare: bool = True,
        receipt: str = "",
    ) -> None:
        self.epoch = epoch
        self.body = body  # as it was when the attempt came; the bag may have new inputs by now
        self.task = task
        self.fetched = fetched
        self.weight = weight  # slots' worth
        self.bare = bare  # all its files are here, and it needs no setup
        self.receipt = receipt  # from the answer that brought the attempt
        self.started = False  # handed to a slot; it may still wait there
