"""Sites as people write them: what becomes of it, and what is refused with which words."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey import config
from covey.config_sites import KEYS, read, table_of
from covey.core.errors import BadConfig
from covey.core.record.model import SiteSpec
from tests.unit.test_config import Place

WHOLE: dict[str, Any] = {
    "driver": "slurm", "host": "login.example.org", "options": {"partition": "short", "nice": 3},
    "environment": {"SLURM_CONF": "/etc/b.conf"}, "directory": "/scratch/covey", "python": "py",
    "setup": "module load python", "check": "true", "slots": 8, "memory": "16G", "disk": "500M",
    "gpus": 1, "wall": "4h", "idle": "90s", "queued": 20, "running": 0, "per_user": 5,
    "all_memory": "1T", "all_disk": "2T", "ramp": 2, "interval": "15s", "pause": "0.5s",
    "credentials": ["~/proxy"], "credential_check": "klist -s", "users": ["ann", "bob"],
    "price": 0.25, "weight": 3.0, "preference": "Bag.Owner == \"ann\"", "failover": True,
    "shared": True,
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_every_key() -> None:
    spec = read("cluster", WHOLE)
    assert spec == SiteSpec(
        name="cluster", driver="slurm", host="login.example.org",
        options={"partition": "short", "nice": 3}, environment={"SLURM_CONF": "/etc/b.conf"},
        directory="/scratch/covey", python="py", setup="module load python", check="true", slots=8,
        memory_mb=16384, disk_mb=500, gpus=1, wall_seconds=14400.0, idle_seconds=90.0, queued=20,
        running=0, per_user=5, all_memory_mb=1 << 20, all_disk_mb=2 << 20, ramp=2,
        interval_seconds=15.0, pause_seconds=0.5, credentials=("~/proxy",),
        credential_check="klist -s", users=("ann", "bob"), price=0.25, weight=3.0,
        preference="Bag.Owner == \"ann\"", failover=True, shared=True,
    )  # fmt: skip
    assert table_of(spec) == WHOLE
    assert WHOLE.keys() == KEYS.keys(), "each key is tried here"


def test_keys_are_those_of_the_spec_with_its_defaults() -> None:
    fields = {one.name for one in msgspec.structs.fields(SiteSpec)}
    assert {key.field for key in KEYS.values()} == fields - {"name", "facts"}
    assert read("a", {"driver": "pbs"}) == SiteSpec(name="a", driver="pbs")
    said = {key.name: key.default for key in KEYS.values()}
    assert read("a", {**said, "driver": "pbs"}) == SiteSpec(name="a", driver="pbs")
    assert table_of(SiteSpec(name="a", driver="pbs")) == {"driver": "pbs"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5h", 5400), (" 2 d ", 172800), (30, 30), (0.5, 0.5), ("0", 0)],
)
def test_times(text: object, seconds: float) -> None:
    spec = read("a", {"driver": "pbs", "wall": text})
    assert spec.wall_seconds == seconds
    assert read("a", table_of(spec)) == spec, "what is shown means the same"


@pytest.mark.parametrize(
    ("text", "megabytes"), [("4G", 4096), ("1.5 GB", 1536), ("100 MiB", 100), ("2t", 2 << 20)]
)
def test_sizes(text: str, megabytes: int) -> None:
    spec = read("a", {"driver": "pbs", "memory": text})
    assert spec.memory_mb == megabytes
    assert read("a", table_of(spec)) == spec


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"wal": "2h"}, ["unknown key 'wal'", "did you mean 'wall'?"]),
        ({"walltime": "2h"}, ["did you mean 'wall'?"]),
        ({"partition": "x"}, ["did you mean 'options.partition'?", "belongs to the driver"]),
        ({"colour": 1}, ["unknown key 'colour'; the keys are driver, host"]),
        ({"wall": "2 hours"}, ["wall: expected a time: seconds, or 1h30m, 90s"]),
        ({"wall": -1}, ["wall: expected a time"]),
        ({"memory": 4096}, ["memory: a size needs its unit: '4096 MB'"]),
        ({"memory": "4"}, ["memory: a size needs its unit"]),
        ({"memory": "2G", "all_memory": "1G"}, ["all_memory is less than the memory of one pilot"]),
        (
            {"all_memory": "1G"},
            ["all_memory has no effect unless memory (of one pilot)"],
        ),
        ({"all_disk": "1G"}, ["all_disk has no effect unless disk (of one pilot)"]),
        ({"slots": 0}, ["slots = 0"]),
        ({"slots": "many"}, ["slots = 'many'", "a whole number, not text"]),
        ({"queued": -1}, ["queued = -1"]),
        ({"interval": 0}, ["interval = 0"]),
        ({"host": "-oProxyCommand=x"}, ["host = '-oProxyCommand=x'"]),
        ({"host": "a b"}, ["host = 'a b'"]),
        ({"python": "a\nb"}, ["python = 'a\\nb'"]),
        ({"users": "ann"}, ["users = 'ann'"]),
        ({"users": [""]}, ["users: '' is not a user name"]),
        ({"environment": {"A-B": "1"}}, ["environment: 'A-B' is not the name of a variable"]),
        ({"environment": {"A": 1}}, ["environment.A = 1 is not a text: put it in quotes"]),
        ({"options": {"a": {"b": [None]}}}, ["options.a = a table: an option is a text"]),
        ({"options": "short"}, ["options = 'short'"]),
        ({"preference": "1 +"}, ["preference: "]),
        ({"driver": "local"}, ["'local' is the server's own machine"]),
        ({"driver": ""}, ["driver = ''"]),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(
    place: Place, more: dict[str, Any], told: list[str]
) -> None:
    with pytest.raises(BadConfig) as caught:
        read("lab", {"driver": "pbs", **more}, "/x/covey.toml")
    for words in ["/x/covey.toml: [sites.lab]: ", *told]:
        assert words in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "x" * 41, "ä"])
def test_names(name: str) -> None:
    with pytest.raises(BadConfig, match="is not a site's name"):
        read(name, {"driver": "pbs"})


@pytest.mark.parametrize("table", [{}, {"slots": 1}])
def test_a_site_has_a_driver(table: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match="driver is missing"):
        read("a", table)


# -- covey.toml ----------------------------------------------------------------------------------


def test_a_site_in_a_file(place: Place) -> None:
    place.write_local('[sites.b]\ndriver = "pbs"\n[sites.a]\ndriver = "slurm"\nslots = 2\n')
    settled = place.load()
    assert [one.name for one in settled.config.sites] == ["b", "a"]
    assert settled.origins["sites.a"] == str(place.here / "covey.toml")


def test_the_nearer_file_has_the_last_word_on_a_site(place: Place) -> None:
    place.write_own('[sites.a]\ndriver = "slurm"\nslots = 2\n[sites.c]\ndriver = "lsf"\n')
    place.write_local('[sites.a]\ndriver = "pbs"\n')
    settled = place.load()
    assert settled.config.sites == (
        SiteSpec(name="a", driver="pbs"),
        SiteSpec(name="c", driver="lsf"),
    )
    assert settled.origins["sites.c"].endswith("home/.config/covey/covey.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sites = 1", "[sites] needs a name: write [sites.NAME]"),
        ("[sites]\ndriver = 'slurm'", "[sites.driver]: this must be a table: write [sites.driver]"),
        ("[site.a]\ndriver = 'slurm'", "did you mean 'sites'?"),
        ("[sites.a]\ndrivr = 'slurm'", "[sites.a]: unknown key 'drivr'; did you mean 'driver'?"),
        ("[sites.local]\ndriver = 'slurm'", "its settings are in [local]"),
    ],
)
def test_a_bad_file(place: Place, text: str, told: str) -> None:
    place.write_local(text)
    with pytest.raises(BadConfig) as caught:
        place.load()
    assert f"{place.here / 'covey.toml'}: " in str(caught.value)
    assert told in str(caught.value)


def test_sites_do_not_come_from_the_environment(place: Place) -> None:
    with pytest.raises(BadConfig, match=r"is not possible: write sites into covey"):
        place.load(COVEY_SITES_A_DRIVER="slurm")


def test_no_sites_by_default() -> None:
    assert config.Config().sites == ()
