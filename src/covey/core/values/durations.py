"""How long tasks took, kept in a few numbers."""

from msgspec import Struct


class Times(Struct):
    """How long the tasks of a class took: count, mean and sum of squares about it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        step = seconds - self.mean
        self.mean += step / self.count
        self.squares += step * (seconds - self.mean)

    @property
    def deviation(self) -> float:
        return (self.squares / (self.count - 1)) ** 0.5 if self.count > 1 else 0.0
