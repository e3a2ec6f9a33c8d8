"""Calls with large arguments on a real server: there and back, kept while they are needed, and for
nobody else."""

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.client.client import Client
from covey.core.errors import NotFound, Refused
from covey.core.record import call_files
from covey.core.record.model import BagSpec, Blob, Role, Segment
from covey.core.values.space import Axis, Values
from covey.executor import CallTooLarge, Executor
from covey.pilot.calls.call_records import CALL, CALL_FILE
from covey.python.connection import Connection, connect
from covey.store.files.blobs import Blobs
from covey.store.files.holdings import Holdings
from covey.store.sqlite.reading import SqliteReader
from tests.faults.world import kill, open_world, parent, process_name, wait_until
from tests.integration.test_server_protocol import BAGS, FILES, LEAVE, Pilot, Server

SECONDS = 60.0
MEGA = 1_000_000


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("large")
    with connect(dir=folder / ".covey", slots=2) as found:
        found.server()
        yield found
        found.client().stop()


@pytest.fixture
def executor(connection: Connection) -> Iterator[Executor]:
    with Executor(connection) as found:
        yield found


def files(connection: Connection, least: int = MEGA) -> list[Path]:
    """Large ones that the server has."""
    folder = connection.config.directory / "files"
    return [one for one in folder.rglob("*") if one.is_file() and one.stat().st_size >= least]


def turned(data: bytes, *more: Any) -> bytes:
    return data[::-1]


def test_thirty_megabytes_go_there_and_come_back(executor: Executor) -> None:
    data = os.urandom(30 * MEGA)
    began = time.monotonic()
    future = executor.submit(turned, data)
    assert time.monotonic() - began < 5, "nothing is uploaded in there"
    assert future.result(SECONDS) == data[::-1]
    assert executor.submit(lambda: len(data)).result(SECONDS) == len(data), "with its closure"
    chunks = [data[start : start + MEGA] for start in range(0, 20 * MEGA, MEGA)]
    assert list(executor.map(turned, chunks, chunksize=10)) == [one[::-1] for one in chunks]


def test_calls_of_every_size(executor: Executor) -> None:
    sizes = [0, 200_000, 262_000, 263_000, MEGA, 5 * MEGA, 2, 99 * MEGA]
    assert list(executor.map(len, map(bytes, sizes))) == sizes


def test_a_worker_finds_nothing_of_other_calls(executor: Executor) -> None:
    list(executor.map(len, [bytes(300_000 + number) for number in range(4)]))
    assert set(executor.submit(os.listdir).result(SECONDS)) == {"covey-worker.pyz"}


def test_the_same_bytes_are_uploaded_once(
    executor: Executor, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    real = Client.put_piece

    def put_piece(client: Client, digest: str, offset: int, size: int, data: bytes) -> Any:
        sent.append(len(data))
        return real(client, digest, offset, size, data)

    executor.submit(abs, 1).result(SECONDS)  # with the worker's program
    monkeypatch.setattr(Client, "put_piece", put_piece)
    before, data = set(files(connection)), os.urandom(7 * MEGA)
    for function in (min, max):
        found = [executor.submit(function, data) for _ in range(4)]
        assert {one.result(SECONDS) for one in found} == {function(data)}
    assert 14 * MEGA < sum(sent) < 15 * MEGA, "one per function, not per call"
    assert len(set(files(connection)) - before) == 2


def test_more_than_a_hundred_megabytes_are_refused_with_words(executor: Executor) -> None:
    with pytest.raises(CallTooLarge, match=r"arguments should be smaller.*name of a file"):
        executor.submit(len, bytes(105 * MEGA)).result(SECONDS)
    assert executor.submit(len, bytes(100)).result(SECONDS) == 100, "it goes on"


def test_joblib_with_large_arguments(connection: Connection) -> None:
    joblib = pytest.importorskip("joblib")
    import covey.executor.joblib  # noqa: F401 # makes the backend known

    chunks = [bytes(5 * MEGA + number) for number in range(30)]
    with joblib.parallel_config(backend="covey", n_jobs=2, connection=connection):
        found = joblib.Parallel()(joblib.delayed(len)(one) for one in chunks)
    assert found == [len(one) for one in chunks]


def test_abort_does_not_wait_for_an_upload(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun = Client.put_piece, threading.Event()

    def slowly(client: Client, digest: str, offset: int, size: int, data: bytes) -> Any:
        begun.set()
        time.sleep(0.5)
        return real(client, digest, offset, size, data)

    executor = Executor(connection)
    executor.submit(abs, 1).result(SECONDS)
    monkeypatch.setattr(Client, "put_piece", slowly)
    future = executor.submit(len, os.urandom(90 * MEGA))
    assert begun.wait(SECONDS)
    began = time.monotonic()
    executor.abort()
    executor.shutdown()
    assert time.monotonic() - began < 5
    assert future.done()
    view = connection.client().bag(executor.bag)
    assert view is not None
    assert view.status == "cancelled"


# -- kept while it is needed --------------------------------------------------------------


def test_it_survives_the_death_of_the_server(tmp_path: Path) -> None:
    """Between submit and run: what is acknowledged is there, and what is not is sent again."""
    with connect(dir=tmp_path / ".covey", slots=1) as connection:
        with Executor(connection) as executor:
            assert executor.submit(abs, -1).result(SECONDS) == 1
            slow = executor.submit(time.sleep, 1.5)
            data = [os.urandom(12 * MEGA) for _ in range(4)]
            found = [executor.submit(turned, one) for one in data]
            wait_until(lambda: len(files(connection)) >= 2, SECONDS)
            os.kill(connection.server().pid, signal.SIGKILL)
            for future, one in zip(found, data, strict=True):
                assert future.result(SECONDS) == one[::-1]
            slow.result(SECONDS)
        connection.client().stop()


def test_it_survives_the_death_of_the_pilot() -> None:
    with open_world() as world:
        world.serve("--embedded", "--slots", "1")
        with connect(dir=world.directory, slots=1) as connection, Executor(connection) as executor:
            pid = executor.submit(os.getpid).result(SECONDS)
            slow = executor.submit(time.sleep, 2)
            data = os.urandom(12 * MEGA)
            found = executor.submit(turned, data)
            wait_until(lambda: bool(files(connection)), SECONDS)
            assert process_name(parent(pid)).startswith("covey-slot")
            (pilot,) = world.pilots()
            kill(pilot)
            assert found.result(SECONDS) == data[::-1]
            slow.result(SECONDS)


def collected(connection: Connection) -> None:
    """As the server does once an hour, of files however young."""
    reader = SqliteReader(connection.config.directory / "covey.db")
    with contextlib.closing(reader):
        holdings = Holdings(Blobs(connection.config.directory / "files"))
        holdings.collect(reader.named_files(), -60.0)


def test_a_file_is_kept_until_its_call_is_done_and_no_longer(
    connection: Connection, tmp_path: Path
) -> None:
    def waits(path: Path, data: bytes) -> int:
        while not path.exists():
            time.sleep(0.02)
        return len(data)

    def kept() -> list[int]:
        """In MB. What other tests have left is smaller, or larger."""
        collected(connection)
        sizes = [file.stat().st_size // MEGA for file in files(connection)]
        return sorted(size for size in sizes if 41 <= size <= 43)

    with Executor(connection) as executor:
        held = executor.submit(waits, tmp_path / "go", bytes(42 * MEGA))
        failed = executor.submit(lambda data: 1 / 0, bytes(41 * MEGA))
        done = executor.submit(len, bytes(43 * MEGA))
        assert done.result(SECONDS) == 43 * MEGA
        assert isinstance(failed.exception(SECONDS), ZeroDivisionError)
        assert kept() == [41, 42], "one may be tried again, one runs"
        (tmp_path / "go").touch()
        assert held.result(SECONDS) == 42 * MEGA
    bag = executor.bag
    client = connection.client()
    wait_until(lambda: client.bag(bag).status == "finished", SECONDS)  # type: ignore[union-attr]
    assert kept() == [41]
    client.purge(bag, "all")
    assert kept() == []


# -- and for nobody else ------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with open_world() as world:
        world.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "1"})
        yield Server(world)


def uploaded(server: Server, data: bytes) -> Blob:
    client = server.world.client()
    digest = hashlib.sha256(data).hexdigest()
    assert client.put_piece(digest, 0, len(data), data).complete
    client.close()
    return Blob(digest, len(data))


def opened(server: Server, *given: str, **fields: Any) -> int:
    space = Axis(CALL, Values(()))
    spec = BagSpec(argv=("worker",), calls=True, open=True, space=space, **fields)
    client = server.world.client()
    bag = client.submit(spec).bag
    client.append(bag, Segment(space=Axis(CALL, Values(given))))
    client.close()
    return bag


def read(server: Server, pilot: Pilot, blob: Blob) -> int:
    path = f"{FILES}/{blob.digest}?pilot={pilot.id}"
    return server.call("GET", path, None, pilot.credential).status


def test_a_pilot_reads_the_calls_that_it_has_and_no_others(server: Server) -> None:
    blobs = [uploaded(server, bytes([number]) * 500_000) for number in range(3)]
    bag = opened(server, *map(call_files.reference, blobs))
    mine, other = server.enrol(slots=1), server.enrol(slots=1)
    assert [read(server, mine, blob) for blob in blobs] == [403] * 3
    (task,) = mine.sync(1, 0, want=1).content["tasks"]
    (theirs,) = other.sync(1, 0, want=1).content["tasks"]
    assert (task[2], theirs[2]) == (0, 1)
    assert task[7] == [[CALL_FILE, blobs[0].digest, 500_000, False, False, ""]]
    assert [read(server, mine, blob) for blob in blobs] == [200, 403, 403]
    assert [read(server, other, blob) for blob in blobs] == [403, 200, 403]
    assert mine.sync(2, 1, ends=[mine.end(task)]).status == 200
    assert [read(server, mine, blob) for blob in blobs] == [403] * 3
    server.call("POST", f"{BAGS}/{bag}/cancel")
    for one in (mine, other):
        server.call("POST", LEAVE, {"pilot": one.id, "epoch": one.epoch}, one.credential)


def test_a_call_whose_file_is_not_here_is_not_taken(server: Server) -> None:
    missing = call_files.reference(Blob("5" * 64, 500_000))
    bag = opened(server, "YQ==")
    client = server.world.client()
    with pytest.raises(Refused, match="upload these first: 5555"):
        client.append(bag, Segment(space=Axis(CALL, Values(("YQ==", missing)))))
    with pytest.raises(Refused, match="upload these first: 5555"):
        client.submit(BagSpec(argv=("x",), calls=True, space=Axis(CALL, Values((missing,)))))
    with pytest.raises(Refused, match="DIGEST:SIZE"):
        client.append(bag, Segment(space=Axis(CALL, Values(("@somewhere",)))))
    view = client.bag(bag)
    assert view is not None
    assert view.total == 1
    client.cancel(bag)
    client.close()


def test_somebody_elses_call_is_not_there(server: Server) -> None:
    blob = uploaded(server, b"secret of ann" * 50_000)
    bag = opened(server, call_files.reference(blob), owner="ann")
    found = {}
    for owner in ("ann", "bob"):
        asked = {"name": owner, "role": Role.USER.value, "owner": owner, "seconds": 0.0}
        token = server.call("POST", "/api/v1/tokens", asked).content["token"]
        client = Client(f"http://{server.host}:{server.port}", token, patience_seconds=0)
        try:
            found[owner] = len(b"".join(client.read_file(blob.digest)))
        except NotFound:
            found[owner] = -1
        client.close()
    assert found == {"ann": blob.size, "bob": -1}
    server.call("POST", f"{BAGS}/{bag}/cancel")
