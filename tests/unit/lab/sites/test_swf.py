"""Traces: what of a line is read, and what is said about lines that are none."""

import gzip
from pathlib import Path

import pytest

from covey.core.errors import BadConfig
from covey.lab.sites import swf

HEAD = "; Version: 2.2\n;\n"
LINE = "{n} {at} {wait} {ran} {cores} -1 -1 {asked_cores} {asked} -1 1 4 -1 -1 -1 -1 -1 -1\n"


def line(at: float, ran: float, cores: int = 2, asked: float = -1, **more: object) -> str:
    given = {"n": 1, "wait": 30, "asked_cores": -1, **more}
    return LINE.format(at=at, ran=ran, cores=cores, asked=asked, **given)


def test_jobs_come_in_the_order_of_their_submission(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text(HEAD + line(60, 5, asked=100) + "\n" + line(20, 7, cores=-1, asked_cores=8))
    assert swf.read(path) == [swf.TraceJob(20, 8, 7, 7, 30), swf.TraceJob(60, 2, 5, 100, 30)]


def test_what_never_ran_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text(line(1, -1) + line(2, 0) + line(3, 9, cores=0))
    assert swf.read(path) == []


def test_a_file_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "a.swf.gz"
    path.write_bytes(gzip.compress(line(1, 2).encode()))
    assert len(swf.read(path)) == 1


@pytest.mark.parametrize(
    "text", ["1 2 3\n", "a b c d e f g h i j\n", line(1, 2).replace("2", "1e999")]
)
def test_a_line_that_is_no_job_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.swf"
    path.write_text(HEAD + text)
    with pytest.raises(BadConfig, match=r"a\.swf, line 3: .* is no job"):
        swf.read(path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "b.swf.gz"
    broken.write_bytes(b"not gzip")
    for path in (tmp_path / "none.swf", broken):
        with pytest.raises(BadConfig, match="cannot be read"):
            swf.read(path)
