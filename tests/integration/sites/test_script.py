"""The job script, run by a real shell; the pilot only shows what it was told."""

import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.core.protocol.tokens import job_secret
from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.sites.script import PilotSource, job_script

SHOW = """\
import json, os, sys
start = json.load(open(sys.argv[1]))
json.dump(dict(start, environment=dict(os.environ), umask=os.umask(0), file=sys.argv[0],
               private=os.stat(start["directory"]).st_mode & 0o777), open({path!r}, "w"))
"""
WAIT = """\
import json, shutil, signal, sys, time
start = json.load(open(sys.argv[1]))
def end(*_):
    open({path!r}, "w").write("drained")
    shutil.rmtree(start["directory"])
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""


def job(id_: str, **more: object) -> JobRecord:
    return JobRecord(id=JobId(id_), site="there", slots=4, submitted=0.0, **more)  # type: ignore[arg-type]


class Node:
    """Where scripts run: `shown` is what a pilot was told, `tmp` the node's own disk."""

    def __init__(self, folder: Path) -> None:
        self.shown = folder / "shown"
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        self.pilot = folder / "a pilot's file.pyz"
        self.put(SHOW)
        self.environment = {**os.environ, "TMPDIR": str(self.tmp)}

    def put(self, program: str) -> None:
        """A pilot file that runs this, and has a module of its own."""
        with zipfile.ZipFile(self.pilot, "w") as file:
            file.writestr(
                "__main__.py",
                "from inside.part import NUMBER\n" + program.format(path=str(self.shown)),
            )
            file.writestr("inside/__init__.py", "")
            file.writestr("inside/part.py", "NUMBER = 7\n")

    def told(self, address: str = "https://queue.example", pilot: str = "") -> PilotSource:
        digest = hashlib.sha256(self.pilot.read_bytes()).hexdigest()
        return PilotSource(
            address, "-----BEGIN\nPEM-----\n", "master", pilot or str(self.pilot), digest
        )

    def run(self, script: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["/bin/sh"],
            input=script,
            capture_output=True,
            text=True,
            timeout=60,
            env={**self.environment, **more},
        )

    def found(self) -> dict[str, object]:
        found = json.loads(self.shown.read_text())
        assert isinstance(found, dict)
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def spec(**more: object) -> SiteSpec:
    return SiteSpec(name="there", driver="slurm", python=sys.executable, **more)  # type: ignore[arg-type]


def test_a_pilot_is_told_what_it_needs(node: Node) -> None:
    one = job("1-1", wall_seconds=600.0, memory_mb=500, disk_mb=70)
    before = time.time()
    done = node.run(job_script(spec(shared=True), [one], "0", node.told()))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = node.found()
    assert 590 < float(str(found.pop("until"))) - before < 660
    directory = Path(str(found["directory"]))
    assert directory.parent == node.tmp
    wanted = {
        "address": "https://queue.example",
        "ca": "-----BEGIN\nPEM-----\n",
        "secret": job_secret("master", "1-1"),
        "job": "1-1",
        "site": "there",
        "slots": 4,
        "memory_mb": 500,
        "disk_mb": 70,
        "gpus": "none",
        "shared": True,
        "check": "",
        "private": 0o700,
    }
    assert {name: found[name] for name in wanted} == wanted
    secret = str(found["secret"])
    assert secret not in str(found["environment"])


def test_tasks_do_not_inherit_our_mask(node: Node) -> None:
    script = job_script(spec(), [job("1-1")], "0", node.told())
    node.run("umask 027\n" + script)
    assert node.found()["umask"] == 0o027


def test_nothing_in_the_settings_is_read_by_the_shell(node: Node) -> None:
    odd = "echo \"$HOME\" `id` $(id) 'x' \\n \\\\ @start COVEY\nCOVEY\n!"
    done = node.run(job_script(spec(check=odd), [job("1-1")], "0", node.told()))
    assert done.returncode == 0, done.stderr
    assert node.found()["check"] == odd


def test_what_the_setup_sets_is_the_pilots(node: Node) -> None:
    setup = "greeting='it'\"'\"'s @python'\nexport greeting\nmodule() { :; }"
    done = node.run(job_script(spec(setup=setup), [job("1-1")], "0", node.told()))
    assert done.returncode == 0, done.stderr
    environment = node.found()["environment"]
    assert isinstance(environment, dict)
    assert environment["greeting"] == "it's @python"


def test_the_time_counts_from_before_the_setup(node: Node) -> None:
    before = time.time()
    one = job("1-1", wall_seconds=600.0)
    done = node.run(job_script(spec(setup="date() { echo 0; }"), [one], "0", node.told()))
    assert done.returncode == 0, done.stderr
    assert float(str(node.found()["until"])) > before + 590


def test_what_the_setup_sets_is_not_mistaken_for_ours(node: Node, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    setup = f"here={theirs} before=777 ends=1"
    nowhere = SiteSpec(name="there", driver="slurm", python="python9", setup=setup)
    assert node.run(job_script(nowhere, [job("1-1")], "0", node.told())).returncode == 1
    assert theirs.is_dir()
    assert list(node.tmp.iterdir()) == []


@pytest.mark.parametrize("setup", ["false", "if", "exit 3"])
def test_a_setup_that_fails_ends_the_job(node: Node, setup: str) -> None:
    done = node.run(job_script(spec(setup=setup), [job("1-1")], "0", node.told()))
    assert done.returncode != 0
    assert not node.shown.exists()
    assert list(node.tmp.iterdir()) == []


def test_a_node_without_python_says_so(node: Node) -> None:
    nowhere = SiteSpec(name="there", driver="slurm", python="python9")
    done = node.run(job_script(nowhere, [job("1-1")], "0", node.told()))
    assert done.returncode == 1
    assert "no python9 on this host" in done.stderr
    assert list(node.tmp.iterdir()) == []


def test_python_may_be_at_home(node: Node, tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    at_home = SiteSpec(name="there", driver="slurm", python="~/python")
    done = node.run(job_script(at_home, [job("1-1")], "0", node.told()), HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_an_element_of_an_array_finds_its_own(node: Node) -> None:
    jobs = [job(f"1-1.{part}") for part in range(12)]
    script = job_script(spec(), jobs, "$((NUMBER - 1))", node.told())
    for number in (1, 11, 12):
        assert node.run(script, NUMBER=str(number)).returncode == 0
        found = node.found()
        assert found["job"] == f"1-1.{number - 1}"
        assert found["secret"] == job_secret("master", f"1-1.{number - 1}")
    done = node.run(script, NUMBER="13")
    assert (done.returncode, done.stderr) == (1, "covey: this job array has no such index\n")


def test_a_signal_reaches_the_pilot(node: Node) -> None:
    node.put(WAIT)
    script = job_script(spec(), [job("1-1")], "0", node.told())
    process = subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, env=node.environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert node.shown.read_text() == "drained"
    assert list(node.tmp.iterdir()) == []


def test_a_signal_before_the_pilot_is_there_leaves_nothing(node: Node) -> None:
    script = job_script(spec(setup="echo ready; sleep 60 & wait"), [job("1-1")], "0", node.told())
    process = subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, env=node.environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    assert list(node.tmp.iterdir()) == []


# -- what others who use the same account can do -------------------------------------------


def test_a_pilot_file_that_somebody_replaced_is_not_run(node: Node) -> None:
    script = job_script(spec(), [job("1-1")], "0", node.told())
    node.put(SHOW + "# of somebody else\n")
    done = node.run(script)
    assert done.returncode == 1
    words = (
        f"covey: the pilot file {node.pilot} was changed: it is not the file that the server wrote"
    )
    assert done.stderr.strip() == f"{words}; nothing was run"
    assert not node.shown.exists()
    assert list(node.tmp.iterdir()) == [], "nor is a secret left"


def test_what_was_checked_is_what_runs(node: Node) -> None:
    """The file is replaced as soon as the program runs; a module that is imported later is the
    one that was checked."""
    swap = "import os\nos.unlink({pilot!r})\nopen({pilot!r}, 'w').close()\n"
    late = "import inside.late\nassert inside.late.NUMBER == 8\n"
    with zipfile.ZipFile(node.pilot, "w") as file:
        file.writestr("__main__.py", swap.format(pilot=str(node.pilot)) + late)
        file.writestr("inside/__init__.py", "")
        file.writestr("inside/late.py", "NUMBER = 8\n")
    done = node.run(job_script(spec(), [job("1-1")], "0", node.told()))
    assert done.returncode == 0, done.stderr


def test_nothing_is_imported_from_where_the_job_runs(node: Node, tmp_path: Path) -> None:
    """Others can write to the directory, and to the user's own packages."""
    place = tmp_path / "log"
    place.mkdir()
    (place / "hashlib.py").write_text("raise SystemExit('hijacked')\n")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / ".local/lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (packages / "usercustomize.py").write_text("raise SystemExit('hijacked')\n")
    script = job_script(spec(), [job("1-1")], "0", node.told())
    done = node.run(f"cd {place}\n{script}", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert node.found()["job"] == "1-1"


def test_a_script_in_a_folder_of_its_own_leaves_no_secret_there(node: Node, tmp_path: Path) -> None:
    """As on hosts without a batch system, whether the pilot comes to be or not."""
    folder = tmp_path / "job"
    for python in (sys.executable, "python9"):
        folder.mkdir()
        there = SiteSpec(name="there", driver="ssh", python=python)
        (folder / "script").write_text(job_script(there, [job("1-1")], "0", node.told()))
        environment = {**node.environment, "COVEY_FOLDER": str(folder)}
        done = subprocess.run(["/bin/sh", str(folder / "script")], env=environment, timeout=60)
        left = [path.name for path in folder.iterdir()]
        assert (done.returncode, left) == ((0, ["start.json"]) if python != "python9" else (1, []))
        shutil.rmtree(folder)
    assert "COVEY_FOLDER" not in str(node.found()["environment"])


# -- nodes that do not see the site's directory --------------------------------------------


class Serving(http.server.BaseHTTPRequestHandler):
    content = b""

    def do_GET(self) -> None:
        assert self.path == "/pilot/v1/pilot.pyz"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    made = http.server.HTTPServer(("127.0.0.1", 0), Serving)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_pilot_file_that_cannot_be_read_is_fetched(
    node: Node, server: http.server.HTTPServer
) -> None:
    Serving.content = node.pilot.read_bytes()
    told = node.told(f"http://127.0.0.1:{server.server_port}", "/nowhere/pilot.pyz")
    one = job("1-1")
    # The authority of our stand-in for PEM is none: it is for HTTPS only.
    done = node.run(job_script(spec(), [one], "0", told._replace(ca="")))
    assert done.returncode == 0, done.stderr
    assert node.found()["job"] == "1-1"


def test_without_https_another_pilot_file_is_not_run(
    node: Node, server: http.server.HTTPServer
) -> None:
    Serving.content = node.pilot.read_bytes() + b"#"
    told = node.told(f"http://127.0.0.1:{server.server_port}", "/nowhere/pilot.pyz")
    done = node.run(job_script(spec(), [job("1-1")], "0", told._replace(ca="")))
    assert done.returncode == 1
    assert "it is not the file that the server wrote; nothing was run" in done.stderr
    assert not node.shown.exists()
    assert list(node.tmp.iterdir()) == []
