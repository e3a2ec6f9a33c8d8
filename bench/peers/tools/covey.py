"""covey, with an embedded server as `covey run` starts it."""

import time
from collections.abc import Iterator
from pathlib import Path

from bench import processes, rig, submitter
from bench.peers import tasks
from bench.peers.peer import NotThere, Peer, Status, serve
from covey.client import embedded
from covey.client.client import Client
from covey.core.record.model import BagSpec
from covey.wire import ResultQuery, ResultRow


class Covey(Peer):
    replaces_workers = True
    client: Client

    def start(self, workers: int, slots: int, retries: int, durable: bool) -> None:
        self.directory = Path(".covey").absolute()
        self.options = ["--pilots", str(workers), "--slots", str(slots or 1)]
        self.retries = retries
        self.wanted = workers
        self.client = embedded.attach_or_start(self.directory, self.options)
        self.executor: object = None
        if workers > 1:
            self._gather(workers)

    def _gather(self, workers: int) -> None:
        """Pilots come when there is work: a bag that keeps all wanted, until all are there."""
        spec = BagSpec(argv=("sleep", "0.05"), space=rig.counting(100_000))
        bag = self.client.submit(spec).bag
        while sum(pilot.status == "active" for pilot in self.client.pilots()) < workers:
            time.sleep(0.05)
        self.client.cancel(bag)
        time.sleep(0.3)

    def results(self, argv: list[str], count: int) -> Iterator[Status]:
        spec = BagSpec(argv=tuple(argv), space=rig.counting(count), retries=self.retries)
        bag = self.client.submit(spec).bag
        seen = 0
        for row in self._rows(bag, count):
            seen += 1
            yield row.exit_code if row.outcome == "ok" or row.exit_code else None
        yield from [None] * (count - seen)

    def _rows(self, bag: int, count: int) -> Iterator[ResultRow]:
        after, seen, over = -1, 0, False
        while seen < count:
            query = ResultQuery(after=after, limit=rig.PAGE, by_row=True)
            page = self.client.results(bag, query, rig.WAIT_SECONDS)
            yield from page
            seen += len(page)
            after = page[-1].row if page else after
            if not page and over:
                return
            over = not page and rig.is_over(self.client, bag)

    def calls(self, count: int) -> Iterator[object]:
        executor = self._executor()
        futures = [executor.submit(tasks.nothing) for _ in range(count)]
        for future in futures:
            yield future.result()

    def _executor(self):  # type: ignore[no-untyped-def]
        if self.executor is None:
            import covey

            if not hasattr(covey, "Executor"):
                raise NotThere("covey.Executor does not exist yet")
            self.executor = covey.Executor(covey.connect(dir=self.directory))
        return self.executor

    def submit(self, count: int, distinct: bool) -> None:
        if not distinct:
            submitter.submit_template(self.client, count)
            return
        path = self.directory.parent / "commands"
        with path.open("w") as file:
            file.writelines(f"/bin/true {i}\n" for i in range(count))
        submitter.submit_file(self.client, path)

    def workers(self) -> dict[str, int]:
        return {str(pid): pid for pid in processes.children(self.server())}

    def server(self) -> int:
        record = embedded.read_record(self.directory)
        assert record is not None
        return record.pid

    def stop(self) -> None:
        rig.stop(self.client, self.server())


if __name__ == "__main__":
    serve(Covey())
