"""What a server draws once and keeps; which sites it has."""

import json
from pathlib import Path

import pytest

from covey import config, wiring
from covey.core.errors import BadConfig
from covey.core.record.actions import SaveSite
from covey.core.record.model import SiteRecord, SiteSpec
from covey.store.sqlite.sqlite_record import SqliteRecord

FAR = SiteSpec(name="far", driver="slurm")


def test_secrets_stay_the_same(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    first = wiring._secrets(path)
    assert wiring._secrets(path) == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert (len(first.queue), int(first.queue, 16) >= 0) == (6, True)
    assert wiring._secrets(tmp_path / "other.json").queue != first.queue


def test_what_an_older_server_has_not_drawn_is_added(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    path.write_text(json.dumps({"token": "t", "secret": "s"}))
    found = wiring._secrets(path)
    assert (found.token, found.secret) == ("t", "s")
    assert found.queue
    assert wiring._secrets(path) == found


@pytest.mark.parametrize("text", ["", "[]", "3", "{"])
def test_a_file_that_holds_none_is_drawn_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secrets.json"
    path.write_text(text)
    assert wiring._secrets(path) == wiring._secrets(path)


def test_this_machine_is_a_site_unless_it_runs_no_pilots(tmp_path: Path) -> None:
    both = config.Config(local=config.Local(pilots=3, slots=2, cache_mb=7), sites=(FAR,))
    (here, far), retired = wiring._sites(both, tmp_path)
    assert (here.name, here.running, here.slots, far) == ("local", 3, 2, FAR)
    assert (here.options["cache_mb"], retired) == (7, ())
    none = config.Config(local=config.Local(pilots=0), sites=(FAR,))
    used, retired = wiring._sites(none, tmp_path)
    assert (used, [spec.name for spec in retired]) == ((FAR,), ["local"])


def test_how_ssh_is_called() -> None:
    assert wiring._ssh("ssh -F '/a b'") == ("ssh", "-F", "/a b")
    with pytest.raises(BadConfig, match=r"serve\.ssh"):
        wiring._ssh("ssh 'x")


def test_a_record_is_opened_with_what_drivers_know_now(tmp_path: Path) -> None:
    """Sites were saved by a server whose drivers knew less, or are not installed any more."""
    known, unknown = (SiteSpec(name=n, driver=d, options={"whole_nodes": True})
                      for n, d in (("a", "slurm"), ("b", "slrum")))  # fmt: skip
    before = SqliteRecord(tmp_path / "record.db")
    before.open()
    before.apply([SaveSite(SiteRecord(spec=spec)) for spec in (known, unknown)])
    before.close()
    record = wiring.DescribedRecord(tmp_path / "record.db", wiring.check_site)
    found = {site.spec.name: site.spec for site in record.open().sites}
    record.close()
    assert found["a"].facts.whole_nodes
    assert found["b"] == unknown


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('algorithm = "mesured"', "broker.algorithm = 'mesured': there are room, static, measured"),
        ('draw_by = "price"', "broker.draw_by = 'price': there are static, measured, room"),
    ],
)
def test_brokers_that_there_are_not(tmp_path: Path, setting: str, words: str) -> None:
    (tmp_path / "covey.toml").write_text(f"[broker]\n{setting}\n")
    with pytest.raises(BadConfig) as refused:
        wiring._broker(config.load({}, {}, tmp_path).config)
    assert words in str(refused.value)
