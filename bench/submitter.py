"""A client in a process of its own: it submits one bag when a line comes, and says how long that
took and what it grew by. Run as a script, with the directory of a server and a number of tasks."""

import json
import sys
import time
from pathlib import Path

from covey.client import embedded
from covey.core.model import BagSpec
from covey.core.space import Axis, Range


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    client = embedded.attach(Path(sys.argv[1]))
    assert client is not None
    client.server()
    spec = BagSpec(argv=("/bin/true", "{i}"), space=Axis("i", Range("1", "1", int(sys.argv[2]))))
    before = resident()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    submitted = client.submit(spec)
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
