"""A client in a process of its own: it submits one bag when a line comes, and says how long that
took and what it grew by. Run as a script, with the directory of a server and either a number of
tasks or a file with a command on each line."""

import json
import sys
import time
from pathlib import Path

from covey.client import embedded
from covey.client.client import Client, Submitted
from covey.client.digests import Digests
from covey.client.upload import Upload
from covey.core.record.model import BagSpec, Rows
from covey.core.values.space import Axis, Range


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def submit_template(client: Client, count: int) -> Submitted:
    space = Axis("i", Range("1", "1", count))
    return client.submit(BagSpec(argv=("/bin/true", "{i}"), space=space))


def submit_file(client: Client, path: Path) -> Submitted:
    """With a digest that nobody remembers, as for the first time."""
    upload = Upload(client, digests=Digests(path.with_name("no-cache")))
    blob = upload.add(path)
    upload.send()
    rows = Rows(digest=blob.digest, form="lines", names=("line",), count=0)
    return client.submit(BagSpec(argv=("sh", "-c", "{line}"), rows=rows))


def main() -> None:
    client = embedded.attach(Path(sys.argv[1]))
    assert client is not None
    client.server()
    before = resident()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    if sys.argv[2].isdigit():
        submitted = submit_template(client, int(sys.argv[2]))
    else:
        submitted = submit_file(client, Path(sys.argv[2]))
    found = {
        "seconds": time.monotonic() - began,
        "began": began,
        "bag": submitted.bag,
        "total": submitted.total,
        "grown": resident() - before,
    }
    print(json.dumps(found), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
