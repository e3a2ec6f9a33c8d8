"""Tasks that write what no server takes. Their pilot goes on, and so do later ones on its host."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from covey.client.client import Client
from covey.core.record.model import BagSpec
from covey.whoami import user
from covey.wire import ResultQuery, ResultRow
from tests.faults.world import World, open_world, wait_until

WRITE_TAGS = "import os; open(os.environ['COVEY_TAGS'], 'wb').write({})"
MAKE_FILES = "import os; os.mkdir('d'); [open('d/%d' % n, 'w').close() for n in range(12000)]"
ODD_FILE = "open(b'odd\\xff.txt', 'w').write('x')"


class Evil:
    """What a task does, and what then has to be said of it."""

    def __init__(self, code: str, outcome: str, words: str, *outputs: str) -> None:
        self.code = code
        self.outcome = outcome
        self.words = words
        self.outputs = outputs


EVIL = {
    "a tag with a long name": Evil(
        WRITE_TAGS.format("b'x' * 15000 + b'=1\\n'"), "ok", "1 tags were dropped or cut"
    ),
    "a tag with a long value": Evil(
        WRITE_TAGS.format("b'long=' + b'y' * 15000 + b'\\n'"), "ok", ":long): at most"
    ),
    "a thousand tags": Evil(
        WRITE_TAGS.format("b''.join(b'tag%d=1\\n' % n for n in range(1000))"),
        "ok",
        "tags were dropped or cut",
    ),
    "more tags than a pipe holds": Evil(
        WRITE_TAGS.format("b'a=1\\n' * 20000"), "ok", "everything after the first 16384 bytes"
    ),
    "tags that take most bytes": Evil(
        WRITE_TAGS.format(
            "b''.join(b'w%d=' % n + '\\U0001f600'.encode() * 400 + b'\\n' for n in range(9))"
        ),
        "ok",
        "",
    ),
    "tags that are no text": Evil(
        WRITE_TAGS.format("b'bytes=\\xff\\xfe\\x00\\x1b[31m\\xed\\xa0\\x80\\n\\xff=1\\n=\\n'"),
        "ok",
        "",
    ),
    "a result that is no JSON": Evil(
        "import os; open(os.environ['COVEY_RESULT'], 'w').write"
        '(\'{"x": NaN, "y": "\\\\ud800", "z": 1e999}\')',
        "ok",
        "",
    ),
    "a deep result": Evil(
        "import os; open(os.environ['COVEY_RESULT'], 'w').write"
        "('{\"x\":' * 10000 + '1' + '}' * 10000)",
        "ok",
        "nested too deeply",
    ),
    "logs that take most bytes": Evil(
        "import sys; [s.buffer.write(b'\\0\\xff' * 40000) for s in (sys.stdout, sys.stderr)]",
        "ok",
        "",
    ),
    "12,000 outputs": Evil(MAKE_FILES, "output", "10000", "d"),
    "an output whose name is no text": Evil(ODD_FILE, "output", "is not UTF-8", "*.txt"),
    "no output but one whose name is no text": Evil(
        ODD_FILE, "output", "no output matches 'missing'", "missing"
    ),
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--pilots", "0", env={"COVEY_SERVE_POLL_SECONDS": "1"})
        yield found


class Hosted:
    """The one pilot of the host, and those who look at its results."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client: Client = world.client()
        self.pilot: subprocess.Popen[bytes] | None = None
        self.next_pilot()

    def next_pilot(self) -> None:
        if self.pilot is not None:
            self.pilot.send_signal(signal.SIGTERM)
            self.pilot.wait(30)
        self.pilot = self.world.pilot("--slots", "1")

    def run(self, code: str, *outputs: str) -> ResultRow:
        spec = BagSpec(argv=(sys.executable, "-c", code), outputs=outputs, owner=user())
        bag = self.client.submit(spec).bag

        def over() -> bool:
            view = self.client.bag(bag)
            return view is not None and view.over

        wait_until(over, 60, self.world.log_tail)
        (row,) = self.client.results(bag, ResultQuery(limit=2))
        return row


@pytest.fixture(scope="module")
def hosted(world: World) -> Hosted:
    return Hosted(world)


@pytest.mark.parametrize("name", EVIL)
def test_the_next_task_runs_here_and_with_the_next_pilot(hosted: Hosted, name: str) -> None:
    evil = EVIL[name]
    row = hosted.run(evil.code, *evil.outputs)
    assert (row.outcome, evil.words in row.message) == (evil.outcome, True), row.message
    assert hosted.run("print(1)").outcome == "ok"
    hosted.next_pilot()
    value = str(time.monotonic_ns())
    row = hosted.run(WRITE_TAGS.format(f"b'seen={value}\\n'"))
    assert row.outcome == "ok"

    def told() -> bool:
        (host,) = hosted.client.hosts()
        return host.tags.get(f"{owner_of(hosted)}:seen") == value

    wait_until(told, 30, hosted.world.log_tail)


def owner_of(hosted: Hosted) -> str:
    return next(one.owner for one in hosted.client.bags())


def test_people_are_told_which_tags_are_missing(hosted: Hosted) -> None:
    evil = EVIL["a thousand tags"]
    hosted.run(evil.code)

    def told() -> bool:
        (host,) = hosted.client.hosts()
        return "tags were dropped or cut" in host.tags.get("tags_dropped", "")

    wait_until(told, 30, hosted.world.log_tail)
