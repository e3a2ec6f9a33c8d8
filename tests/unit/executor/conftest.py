from collections.abc import Iterator

import pytest

from covey.executor import answers
from covey.executor.executor import Executor
from covey.executor.stock import Stock
from tests.unit.executor.lane_server import Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(Stock, "send", lambda stock, client, blobs: found.upload(stock, blobs))
    monkeypatch.setattr(answers, "fetched", lambda client, bag, row: found.files[row.task])
    return found


@pytest.fixture
def executor(server: Server) -> Iterator[Executor]:
    with Executor(server) as found:
        yield found
    assert server.closed + server.cancelled == len(server.specs)
