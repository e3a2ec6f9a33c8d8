"""Where settings come from, and what is refused."""

from pathlib import Path

import pytest

from covey import config
from covey.cli.settings import page
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
        ("[local", ["at end of document"]),
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
    """To write it anew: .venv/bin/python -m covey.cli.settings > docs/configuration.md"""
    text = page()
    assert (ROOT / "docs" / "configuration.md").read_text() == text
    for setting in config.SETTINGS.values():
        assert f"`{setting.variable}`" in text
