"""Who uses covey from Python and checks types strictly is told what is wrong, and nothing else."""

import subprocess
import sys
from pathlib import Path

GOOD = """
import covey

connection: covey.Connection = covey.connect(dir="x", slots=2)
bag: covey.Bag = connection.submit(
    "echo {x}", parameters={"x": range(3)}, resources={"memory": "1 GB"}, retries=2
)
same = covey.submit(["echo", 1], name="n", rows=[{"y": 1}], inputs=["a.py"])
done: int = bag.wait(timeout=3.0).progress().done
for result in bag:
    number: int = result.task
    energy = result["energy"]
names: list[str] = bag.results(where="x > 1").columns
causes: list[str] = [group.cause for group in bag.failures()]
text: str = bag.tasks[3].logs().stdout


async def later() -> int:
    try:
        await bag.aio.wait(timeout=1)
    except covey.StillRunning as error:
        return error.bag
    return await (await connection.aio.submit("true", name="n")).aio.cancel()
"""
BAD = """
import covey

covey.conect()
covey.submit("true", parameter={})
covey.connect().submit("true", retries="many")
bag: int = covey.submit("true")
"""


def mypy(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "theirs.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "theirs.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_types_are_known_to_those_who_use_covey(tmp_path: Path) -> None:
    good = mypy(tmp_path, GOOD)
    assert good.returncode == 0, good.stdout
    bad = mypy(tmp_path, BAD)
    told = [line for line in bad.stdout.splitlines() if ": error:" in line]
    assert [int(line.split(":")[1]) for line in told] == [4, 5, 6, 7], bad.stdout
