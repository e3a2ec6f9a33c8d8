"""Outputs wait on disk, and come back whole."""

from pathlib import Path

from covey.pilot.protocol.messages import End, OutputFile
from covey.pilot.protocol.spool import Spool

END = End(1, 2, 3, 4, "ok", stdout="out\n", stderr="err\n")
RICH = END._replace(result='{"a":1}', files=[OutputFile("f", 3, "", "YWJj", True)])


def test_outputs_come_back_whole(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    other = RICH._replace(sequence=9, stdout="x" * 10_000)
    kept = [spool.put(END), spool.put(other)]
    assert [(end.stdout, end.result, end.files) for end in kept] == [("", "", []), ("", "", [])]
    assert spool.filled(kept) == [END, other]
    spool.delivered()
    assert list(tmp_path.iterdir()) == []


def test_an_end_without_output_needs_no_disk(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    silent = END._replace(stdout="", stderr="")
    assert spool.put(silent) is silent
    assert spool.filled([silent]) == [silent]
    assert list(tmp_path.iterdir()) == []


def test_without_disk_the_output_stays_in_memory(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "missing" / "spool"))
    assert spool.put(END) is END


def test_a_lost_file_is_said_so(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    kept, precious = spool.put(END), spool.put(RICH._replace(sequence=9))
    (tmp_path / "spool").unlink()
    assert "lost on the host" in spool.filled([kept])[0].stderr
    assert spool.filled([kept])[0].outcome == "ok"
    assert spool.filled([precious])[0].outcome == "host"
    assert "lost on the host" in spool.filled([precious])[0].message
