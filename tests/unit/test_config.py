"""Where settings come from, and what is refused."""

import os
from pathlib import Path

import pytest

from covey import config
from covey.cli.server.settings import page
from covey.core.errors import BadConfig

ROOT = Path(__file__).parents[2]


class Place:
    """A current directory and a home."""

    def __init__(self, base: Path) -> None:
        self.here = base / "here"
        self.home = base / "home"
        self.here.mkdir()
        (self.home / ".config" / "covey").mkdir(parents=True)

    def write_local(self, text: str) -> None:
        (self.here / "covey.toml").write_text(text)

    def write_own(self, text: str) -> None:
        (self.home / ".config" / "covey" / "covey.toml").write_text(text)

    def load(self, *, flags: dict[str, object] | None = None, **environ: str) -> config.Settled:
        return config.load(flags, {"HOME": str(self.home), **environ}, self.here)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_defaults_need_nothing(place: Place) -> None:
    settled = place.load()
    assert settled.config == config.Config()
    assert set(settled.origins.values()) == {"default"}


def test_each_place_outranks_the_next(place: Place) -> None:
    place.write_own("[local]\nslots = 1\npilots = 11\n[serve]\nport = 111\n[run]\nretries = 9\n")
    place.write_local("[local]\nslots = 2\npilots = 22\n[serve]\nport = 222\n")
    settled = place.load(
        flags={"local.slots": 4, "local.pilots": None},
        COVEY_LOCAL_SLOTS="3",
        COVEY_LOCAL_PILOTS="33",
    )
    tree = settled.config
    assert (tree.local.slots, tree.local.pilots, tree.serve.port, tree.run.retries) == (
        4,
        33,
        222,
        9,
    )
    assert settled.origins["local.slots"] == "flag --slots"
    assert settled.origins["local.pilots"] == "environment, COVEY_LOCAL_PILOTS"
    assert settled.origins["serve.port"] == str(place.here / "covey.toml")
    assert settled.origins["run.retries"].endswith("home/.config/covey/covey.toml")
    assert settled.origins["dir"] == "default"


def test_xdg_config_home(place: Place, tmp_path: Path) -> None:
    place.write_own("dir = 'ignored'")
    (tmp_path / "xdg" / "covey").mkdir(parents=True)
    (tmp_path / "xdg" / "covey" / "covey.toml").write_text("dir = 'mine'")
    assert place.load(XDG_CONFIG_HOME=str(tmp_path / "xdg")).config.dir == "mine"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[serve]\nprot = 1", ["'serve.prot'", "did you mean 'serve.port'?"]),
        ("slots = 1", ["'slots'", "did you mean 'local.slots'?"]),
        ("colour = 1", ["'colour'", "covey config show"]),
        ("serve = 1", ["'serve' is a section: write [serve]"]),
        ("[serve]\nport = 'x'", ["serve.port = 'x'"]),
        ("[serve]\nport = 70000", ["serve.port = 70000"]),
        ("[local]\nslots = -1", ["local.slots = -1"]),
        ("[local]\nslots = 1.5", ["local.slots = 1.5"]),
        ("[local", [":1: this is not TOML"]),
        ("[sreve]\nport = 1", ["'sreve'", "did you mean 'serve'?"]),
    ],
)
def test_a_bad_file_is_refused_with_its_name(place: Place, text: str, told: list[str]) -> None:
    place.write_local(text)
    with pytest.raises(BadConfig) as caught:
        place.load()
    for words in [str(place.here / "covey.toml"), *told]:
        assert words in str(caught.value)


def test_a_misspelt_variable_is_refused(place: Place) -> None:
    with pytest.raises(BadConfig, match="COVEY_LOCAL_SLOT; did you mean 'COVEY_LOCAL_SLOTS'"):
        place.load(COVEY_LOCAL_SLOT="1")


def test_variables_that_tasks_see_are_not_ours(place: Place) -> None:
    assert place.load(COVEY_TASK="3", COVEY_BAG="1").config == config.Config()


@pytest.mark.parametrize("text", ["x", "", "-1", "1.5"])
def test_a_bad_variable_names_itself(place: Place, text: str) -> None:
    with pytest.raises(BadConfig, match="COVEY_LOCAL_SLOTS"):
        place.load(COVEY_LOCAL_SLOTS=text)


def test_unreadable_bytes_are_refused(place: Place) -> None:
    (place.here / "covey.toml").write_bytes(b"dir = '\xff'")
    with pytest.raises(BadConfig, match="cannot be read"):
        place.load()


def test_slots_default_to_the_usable_cores() -> None:
    assert config.Config().local_slots >= 1
    assert config.Config(local=config.Local(slots=7)).local_slots == 7


def test_every_setting_is_described() -> None:
    for setting in config.SETTINGS.values():
        assert setting.text.endswith("."), setting.key


def test_the_page_is_up_to_date() -> None:
    """To write it anew: .venv/bin/python -m covey.cli.server.settings > docs/configuration.md"""
    text = page()
    assert (ROOT / "docs" / "configuration.md").read_text() == text
    for setting in config.SETTINGS.values():
        assert f"`{setting.variable}`" in text


def test_the_record_of_a_directory_above_is_used(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    own = tmp_path / ".covey"
    own.mkdir(mode=0o700)
    assert config.load(environ={}, here=inner).above == ""  # no record is there
    (own / "covey.db").touch()
    found = config.load(environ={}, here=inner)
    assert (found.above, found.config.dir) == (str(own), str(own))
    assert found.origins["dir"] == "a parent directory"
    assert config.load(environ={"COVEY_TASK": "0"}, here=inner).above == ""
    assert config.load(environ={"COVEY_DIR": ".covey"}, here=inner).above == ""
    assert config.load({"dir": ".covey"}, environ={}, here=inner).above == ""
    assert config.load({"server": "http://127.0.0.1:1"}, environ={}, here=inner).above == ""
    assert config.load(environ={}, here=tmp_path).above == ""
    own.chmod(0o777)  # others could say what runs here
    assert config.load(environ={}, here=inner).above == ""
    own.chmod(0o700)
    (inner / ".covey").mkdir()
    assert config.load(environ={}, here=inner).above == ""


def test_the_directory_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record says which commands run here, and they would run as whoever looks at it."""
    folder = tmp_path / ".covey"
    folder.mkdir(mode=0o700)
    (folder / "covey.db").touch()
    inner = tmp_path / "inner"
    inner.mkdir()
    assert config.load(environ={}, here=inner).above
    owner = max(folder.stat().st_uid, 1)
    if os.geteuid() == 0:
        os.chown(folder, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(BadConfig, match="belongs to another user"):
        config.load(environ={}, here=tmp_path)
    assert config.load(environ={}, here=inner).above == ""
    for named in ({"dir": str(folder)}, {"server": "https://covey.example.org"}):
        config.load(named, environ={}, here=tmp_path)
    (inner / ".covey").symlink_to(folder)
    with pytest.raises(BadConfig, match="belongs to another user"):
        config.load(environ={}, here=inner)


@pytest.mark.parametrize(
    "text",
    [
        'dir = "x"',
        '[local]\nsetup = "id"',
        '[serve]\nssh = "sh -c id"',
        '[sites.x]\ndriver = "slurm"\ncredential_check = "id"',
    ],
)
def test_the_file_of_another_user_says_nothing_of_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "covey.toml"
    file.write_text(text)
    config.load(environ={}, here=tmp_path)
    owner = max(file.stat().st_uid, 1)
    if os.geteuid() == 0:
        os.chown(file, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(BadConfig, match=r"covey\.toml belongs to another user"):
        config.load(environ={}, here=tmp_path)
    file.write_text("[run]\nretries = 2\n[policy]\nbatch = true")
    assert config.load(environ={}, here=tmp_path).config.run.retries == 2
