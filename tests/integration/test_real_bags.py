"""Real bags, end to end: bag files, files, limits, results and failures, with the real command
line, server and pilot. Each test is a scientist with one need."""

import csv
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.world import World, open_world, wait_until

SLOTS = {"COVEY_LOCAL_SLOTS": "2"}


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def run(world: World, text: str, *options: str, **env: str) -> dict[str, Any]:
    """Write a bag file and run it; the bag as JSON."""
    (world.root / "bag.toml").write_text(text)
    done = world.covey("run", "bag.toml", "--json", *options, **{**SLOTS, **env})
    assert done.stdout, done.stderr
    view: dict[str, Any] = json.loads(done.stdout)
    return view


def table(world: World, *options: str) -> list[dict[str, str]]:
    target = world.root / "table.csv"
    done = world.covey("results", "-o", str(target), *options, **SLOTS)
    assert done.returncode == 0, done.stderr
    with target.open(newline="") as file:
        return list(csv.DictReader(file))


def covey_json(world: World, *words: str) -> Any:
    done = world.covey(*words, "--json", **SLOTS)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_files_go_in_and_come_out(world: World) -> None:
    (world.root / "lib").mkdir()
    (world.root / "lib" / "offset.txt").write_text("100\n")
    (world.root / "cases").mkdir()
    for name in ("a", "b"):
        (world.root / "cases" / f"{name}.txt").write_text(f"case {name}\n")
    view = run(
        world,
        """
        command = ["sh", "-c", "cat lib/offset.txt cases/{case}.txt > out.txt; head -c 100000 /dev/zero > big.bin"]
        inputs = ["lib/", "cases/{case}.txt"]
        outputs = ["out.txt", "big.bin"]
        [parameters]
        case = ["a", "b"]
        """,  # noqa: E501
    )
    assert (view["status"], view["done"], view["failed"]) == ("finished", 2, 0)
    pulled = world.covey("pull", "-o", "got", "--layout", "{case}", **SLOTS)
    assert pulled.returncode == 0, pulled.stderr
    assert (world.root / "got/a/out.txt").read_text() == "100\ncase a\n"
    assert (world.root / "got/b/big.bin").read_bytes() == bytes(100_000)
    stored = [
        path
        for path in (world.directory / "files").rglob("*")
        if path.is_file() and len(path.name) == 62
    ]
    assert len(stored) == 4, "three inputs, and the large output of both: small ones make no file"


def test_a_shared_input_is_uploaded_and_fetched_once(world: World) -> None:
    (world.root / "data.bin").write_bytes(b"x" * 500_000)
    text = """
        command = ["sh", "-c", "stat -c '%i %a' data.bin; wc -c < data.bin"]
        inputs = ["data.bin"]
        [parameters]
        i = "1..6"
        """
    run(world, text)
    run(world, text)
    cached = [p for p in (world.directory / "cache").rglob("*") if p.is_file()]
    assert sum(path.stat().st_size == 500_000 for path in cached) == 1
    outputs = covey_json(world, "logs", "--limit", "20")
    inodes = {output["stdout"].split()[0] for output in outputs}
    assert len(inodes) == 1, "all of them are links to the one in the cache"
    assert {output["stdout"].split()[1] for output in outputs} <= {"444", "555"}


def test_a_missing_output_is_a_failure_with_its_name(world: World) -> None:
    view = run(
        world,
        """
        command = ["sh", "-c", "echo {i} > almost.txt"]
        outputs = ["result.txt"]
        [parameters]
        i = "1..2"
        """,
    )
    assert view["failed"] == 2
    (group,) = covey_json(world, "failures")
    assert group["outcome"] == "output"
    assert "result.txt" in group["cause"]


def test_results_that_do_not_pass_the_check_have_failed(world: World) -> None:
    run(
        world,
        """
        command = ["sh", "-c", "echo {i} > n; exit {i}"]
        [parameters]
        i = "0..3"
        [validate]
        exit = [0, 1, 2]
        check = "test $(cat n) -ne 2"
        """,
    )
    states = {row["i"]: row["state"] for row in table(world)}
    assert states == {"0": "done", "1": "done", "2": "failed", "3": "failed"}
    assert {group["outcome"] for group in covey_json(world, "failures")} == {"output", "failed"}


def test_values_that_tasks_report_are_columns(world: World) -> None:
    run(
        world,
        """
        script = '''
        #!/bin/sh
        if [ $n -gt 2 ]; then
            echo '{"root": '$n', "kind": "printed"}'
        else
            echo '{"root": '$n', "kind": "written"}' > $COVEY_RESULT
            echo not json
        fi
        '''
        [parameters]
        n = "1..4"
        """,
    )
    rows = table(world, "--where", "root >= 2", "--sort", "-root")
    assert [(row["n"], row["root"], row["kind"]) for row in rows] == [
        ("4", "4", "printed"),
        ("3", "3", "printed"),
        ("2", "2", "written"),
    ]


def test_memory_over_the_limit_is_its_own_failure_and_a_retry_gives_more(world: World) -> None:
    hog = "import sys; data = bytearray({mb} * 1000000); print(len(data))"
    view = run(
        world,
        f"""
        command = ["python3", "-c", "{hog}"]
        [parameters]
        mb = [1, 150]
        [resources]
        memory = "100 MB"
        """,
    )
    assert (view["done"], view["failed"]) == (1, 1)
    (group,) = covey_json(world, "failures")
    assert (group["outcome"], group["cause"]) == ("memory", "memory limit")
    retried = world.covey(
        "retry", "--failed", "--cause", "memory limit", "--memory", "x3", "--watch", **SLOTS
    )
    assert retried.returncode == 0, retried.stderr
    assert [row["state"] for row in table(world)] == ["done", "done"]


def test_a_task_over_its_time_limit_gets_more_time(world: World) -> None:
    view = run(
        world,
        """
        command = ["sleep", "1.2"]
        [resources]
        time = "0.5s"
        """,
    )
    assert view["done"] == 1, "half a second was not enough, three times that is"


def test_resources_depend_on_parameters_and_no_more_runs_than_fits(world: World) -> None:
    journal = world.journal_file
    view = run(
        world,
        f"""
        script = '''
        echo + $size >> {journal}
        sleep 0.4
        echo - $size >> {journal}
        '''
        [parameters]
        size = [1, 1, 2, 1, 2, 1]
        [[resources.when]]
        size = 2
        cores = 2
        """,
    )
    assert view["done"] == 6
    used = 0
    for line in journal.read_text().splitlines():
        sign, size = line.split()
        used += int(size) if sign == "+" else -int(size)
        assert used <= 2, journal.read_text()


def test_gpus_are_handed_out_one_by_one(world: World) -> None:
    """With a list of devices that do not exist: what is tested is who gets which."""
    run(
        world,
        """
        command = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES; sleep 0.2"]
        [parameters]
        i = "1..6"
        [resources]
        gpus = 1
        """,
        COVEY_LOCAL_GPUS="3,7",
    )
    printed = {row["output"] for row in table(world)}
    assert printed == {"3 3", "7 7"}


def test_pinned_tasks_have_cores_of_their_own(world: World) -> None:
    run(
        world,
        """
        command = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; sleep 0.3"]
        [parameters]
        i = "1..4"
        [resources]
        pin = true
        """,
    )
    printed = [row["output"].split()[-1] for row in table(world)]
    assert all("," not in cores and "-" not in cores for cores in printed), printed
    assert len(set(printed)) == 2, "two slots, two cores"


def test_setup_runs_once_per_host_and_its_failure_says_why(world: World) -> None:
    run(
        world,
        f"""
        command = ["sh", "-c", "cat $COVEY_SETUP/made"]
        setup = "echo set up >> {world.journal_file}; echo ready > made"
        [parameters]
        i = "1..4"
        """,
    )
    assert world.journal_file.read_text() == "set up\n"
    assert {row["output"] for row in table(world)} == {"ready"}
    view = run(
        world,
        """
        command = ["true"]
        setup = "echo no compiler here >&2; exit 9"
        """,
    )
    assert view["failed"] == 1
    (group,) = covey_json(world, "failures")
    assert group["outcome"] == "setup"
    assert "no compiler here" in group["cause"]


def test_tags_of_tasks_are_kept_with_their_host(world: World) -> None:
    run(world, """command = ["sh", "-c", "echo dataset=v7 > $COVEY_TAGS"]""")

    def tagged() -> bool:
        (host,) = covey_json(world, "hosts")
        return any(
            name.endswith(":dataset") and value == "v7" for name, value in host["tags"].items()
        )

    wait_until(tagged, 45)
    (host,) = covey_json(world, "hosts")
    assert {"arch", "os_name", "size_mem_mb", "free_disk_mb"} <= set(host["tags"])


def test_a_bag_that_always_fails_is_paused_and_says_so(world: World) -> None:
    (world.root / "bag.toml").write_text(
        """
        command = ["sh", "-c", "echo no licence >&2; exit 4"]
        [parameters]
        i = "1..500"
        """
    )
    done = world.covey("run", "bag.toml", **SLOTS)
    assert done.returncode == 1
    assert "PAUSED" in done.stdout
    assert "no licence" in done.stdout + done.stderr
    view = covey_json(world, "show")
    assert view["status"] == "paused"
    assert view["failed"] <= 50
    assert world.covey("cancel", **SLOTS).returncode == 0


def test_an_open_bag_takes_more_until_it_is_closed(world: World) -> None:
    done = world.covey("submit", "--open", "-p", "i=1..3", "--", "echo", "{i}", **SLOTS)
    assert done.returncode == 0, done.stderr
    rows = world.root / "more.csv"
    rows.write_text("i\n10\n20\n")
    assert world.covey("append", "1", "-p", "i=4..5", **SLOTS).returncode == 0
    wait_until(lambda: covey_json(world, "show")["done"] == 5)
    assert covey_json(world, "show")["status"] == "running"
    closed = world.covey("close", "1", **SLOTS)
    assert closed.returncode == 0, closed.stderr
    assert world.covey("watch", "1", **SLOTS).returncode == 0
    assert [row["i"] for row in table(world)] == ["1", "2", "3", "4", "5"]


def test_rows_of_a_file_are_tasks(world: World) -> None:
    lines = "".join(f"{n},{n * n / 8}\n" for n in range(3000))
    (world.root / "cases.csv").write_text("n,x\n" + lines)
    view = run(
        world,
        """
        command = ["sh", "-c", "test {n} -ne 1234 || exit 5"]
        rows = "cases.csv"
        """,
    )
    assert (view["done"], view["failed"]) == (2999, 1)
    (row,) = table(world, "--failed")
    assert (row["n"], row["x"]) == ("1234", "190344.5")


def test_an_input_from_a_url_is_fetched_once(world: World) -> None:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"data\n")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        run(
            world,
            f"""
            command = ["cat", "x.dat"]
            inputs = ["http://127.0.0.1:{server.server_port}/x.dat"]
            [parameters]
            i = "1..3"
            """,
        )
    finally:
        server.shutdown()
    assert {row["output"] for row in table(world)} == {"data"}
    assert asked == ["/x.dat"]


def test_what_a_running_task_prints_can_be_followed(world: World) -> None:
    script = "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.5; done"
    submitted = world.covey("submit", "--", "sh", "-c", script, **SLOTS)
    assert submitted.returncode == 0, submitted.stderr
    followed = world.covey("logs", "-f", "1", "0", **SLOTS)
    assert followed.returncode == 0, followed.stderr
    printed = [line for line in followed.stdout.splitlines() if line.startswith("line")]
    assert printed == [f"line {i}" for i in range(1, 9)], followed.stdout


def test_purging_removes_logs_files_or_everything(world: World) -> None:
    run(
        world,
        """
        command = ["sh", "-c", "echo spoken; echo kept > f"]
        outputs = ["f"]
        """,
    )
    assert world.covey("purge", "1", "--logs", "--yes", **SLOTS).returncode == 0
    assert covey_json(world, "logs", "1", "0")["stdout"] == ""
    assert table(world)[0]["state"] == "done"
    assert world.covey("purge", "1", "--all", "--yes", **SLOTS).returncode == 0
    assert covey_json(world, "bags") == []
