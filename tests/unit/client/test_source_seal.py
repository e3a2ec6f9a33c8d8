"""A server gets no file of a path that its person never named."""

import stat
from pathlib import Path

from covey.client.source_seal import is_sealed, seal
from covey.core.record.model import InputSource, TaskInput

SOURCE = InputSource(path="/home/ann/fit.py", to="fit.py")
OWN = TaskInput(source="{n}.csv", path="in", base="/home/ann")


def test_only_what_was_sealed_is_known_again(tmp_path: Path) -> None:
    place = tmp_path / "covey" / "key"
    made = seal([SOURCE], [OWN], ["1.csv", "2.csv"], place)
    assert is_sealed(made, [SOURCE], [OWN], ["2.csv", "1.csv"], place)
    secret = InputSource(path="/home/ann/.ssh/id_rsa", to="fit.py")
    for sources, own, keys in (
        ([secret], [OWN], ["1.csv", "2.csv"]),
        ([SOURCE, secret], [OWN], ["1.csv", "2.csv"]),
        ([SOURCE], [TaskInput(source="{n}.csv", path="in", base="/")], ["1.csv", "2.csv"]),
        ([SOURCE], [OWN], ["1.csv", "../.ssh/id_rsa"]),
    ):
        assert not is_sealed(made, sources, own, keys, place)
    assert not is_sealed("", [SOURCE], [], [], place)
    assert not is_sealed("é", [SOURCE], [], [], place)


def test_the_key_is_private_and_each_persons_own(tmp_path: Path) -> None:
    place, other = tmp_path / "a" / "key", tmp_path / "b" / "key"
    made = seal([SOURCE], [], [], place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert made == seal([SOURCE], [], [], place)
    assert made != seal([SOURCE], [], [], other)
    assert list(place.parent.iterdir()) == [place]


def test_without_a_place_for_a_key_nothing_is_sealed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert seal([SOURCE], [], [], tmp_path / "file" / "key") == ""
    assert not is_sealed("", [SOURCE], [], [], tmp_path / "file" / "key")
    (tmp_path / "short").write_bytes(b"x")
    assert seal([SOURCE], [], [], tmp_path / "short") == ""
    assert seal([], [], [], tmp_path / "never") == ""
    assert not (tmp_path / "never").exists()
