"""Attempts that a pilot has been given and that have not ended."""

from covey.pilot.protocol.messages import Body, Task


class Holding:
    """An attempt in our hands."""

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
        self.body = body  # as it was when the attempt came: its bag may have other inputs by now
        self.task = task
        self.fetched = fetched
        self.weight = weight  # slots' worth
        self.bare = bare  # has all files that it needs, and needs no setup
        self.receipt = receipt  # of the answer that it came in
        self.started = False  # handed to a slot; it may still wait in the slot's pipe
