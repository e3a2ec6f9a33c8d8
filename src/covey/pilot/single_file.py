"""A pilot as one file for a bare host: this program, with the pilot file and a start file inside.

The server fills in the two constants below. The program writes both files into a private directory
and becomes the pilot. `--check` only checks this host, `--background` returns at once.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile

START = "{}"
PILOT = ""


def main() -> None:
    if sys.version_info < (3, 6):
        sys.exit("covey-pilot: this is Python %s; 3.6 or later is needed" % sys.version.split()[0])
    words = [word for word in sys.argv[1:] if word not in ("--check", "--background")]
    if words:
        sys.exit("usage: covey-pilot [--check] [--background]")
    start = json.loads(START)
    background = start.pop("background", False) or "--background" in sys.argv
    os.umask(0o077)
    place = tempfile.mkdtemp(prefix="covey-pilot-")
    pilot, start_path = os.path.join(place, "pilot.pyz"), os.path.join(place, "start.json")
    start.update(directory=place, discard=[pilot])
    with open(pilot, "wb") as file:
        file.write(base64.b64decode(PILOT))
    with open(start_path, "w") as text:
        json.dump(start, text)
    command = [sys.executable or "python3", pilot]
    if "--check" in sys.argv:
        sys.exit(check(command + ["--check", start_path], place))
    if background:
        leave()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.execvp(command[0], command + [start_path])


def check(command: "list[str]", place: str) -> int:
    try:
        return subprocess.call(command)
    finally:
        for name in os.listdir(place):
            os.unlink(os.path.join(place, name))
        os.rmdir(place)


def leave() -> None:
    """Go on in the background; the pilot's messages go to a file."""
    handle, log = tempfile.mkstemp(prefix="covey-pilot-", suffix=".log")
    ready, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        os.read(ready, 1)  # wait until the child has left this terminal's session
        words = (
            "covey-pilot: the pilot runs in the background, and writes to %s; to end it: kill %d"
        )
        print(words % (log, pid))
        sys.stdout.flush()
        os._exit(0)
    os.setsid()
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(tell)


if __name__ == "__main__":
    main()
