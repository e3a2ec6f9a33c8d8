"""The files of failed tasks only, for `covey pull --failed` and Python."""

from collections.abc import Iterator

from covey.client.client import Client
from covey.frontend import bag_places
from covey.wire import BagView, ResultQuery, ReturnedFile


class OfFailed:
    """Stands for a client in `download.pull`, and lists only the files of failed tasks."""

    def __init__(self, client: Client, bag: BagView) -> None:
        self._client = client
        rows = bag_places.all_results(client, bag.id, ResultQuery(failed_only=True))
        self._tasks = {row.task for row in rows}

    def bag(self, bag: int) -> BagView | None:
        return self._client.bag(bag)

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[ReturnedFile]:
        while page := self._client.files(bag, after, limit):
            chosen = [file for file in page if file.task in self._tasks]
            if chosen:
                return chosen
            after = page[-1].row
        return []

    def read_file(self, digest: str) -> Iterator[bytes]:
        return self._client.read_file(digest)
