"""`covey retry` and files that have changed since a bag was submitted."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.client.source_seal import seal
from covey.core.errors import BadFile
from covey.core.record.model import Blob, InputChanges, InputSource, Placed, TaskInput
from covey.frontend import input_changes
from covey.whoami import host
from covey.wire import InputsView
from tests.unit.cli.builders import bag
from tests.unit.cli.source import FakeSource, Look

OFFER = "To run them with the files as they are now: covey retry 3 --failed --refresh"


def blob_of(path: Path) -> Blob:
    data = path.read_bytes()
    return Blob(hashlib.sha256(data).hexdigest(), len(data))


def refusal(look: Look) -> str:
    return str(look("retry", "--failed", "--refresh", status=1).exception)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("fit.py", "data/a", "data/b", "own/1.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def submit(here: Path, source: FakeSource) -> Callable[..., None]:
    """Let bag 3 have been submitted with the files as they are now."""

    def submitted(version: int = 1, from_host: str = "") -> None:
        places = ("fit.py", "data/a", "data/b")
        own = [TaskInput(source="own/{n}.csv", path="in.csv", base=str(here))]
        sources = [
            InputSource(path=str(here / "fit.py"), to="fit.py"),
            InputSource(path=str(here / "data"), to="data"),
        ]
        keys = {"own/1.csv": blob_of(here / "own/1.csv")}
        source.named_inputs = InputsView(
            version=version,
            versions=[],
            host=from_host or host(),
            seal=seal(sources, own, keys),
            sources=sources,
            inputs=[Placed(path=place, blob=blob_of(here / place)) for place in places],
            task_inputs=own,
            manifest=keys,
        )

    return submitted


def test_nothing_is_said_while_nothing_has_changed(
    look: Look, submit: Callable[..., None], source: FakeSource
) -> None:
    submit()
    ran = look("retry", "--failed")
    assert (ran.stderr, ran.stdout) == ("", "bag 3: 2 failed tasks will run again\n")
    ran = look("retry", "--failed", "--refresh")
    assert ran.stdout == "bag 3: 2 failed tasks will run again; its input files have not changed\n"
    assert source.told == [("retry", 3, (), None, 1.0, 1.0)] * 2


def test_changed_files_are_named_and_the_old_ones_used(
    look: Look, submit: Callable[..., None], source: FakeSource, here: Path
) -> None:
    submit()
    (here / "fit.py").write_text("new")
    ran = look("retry", "--failed")
    assert "note: since bag 3 was submitted, fit.py has changed. The tasks run with" in ran.stderr
    assert OFFER in ran.stderr
    (here / "data/a").unlink()
    (here / "data/c").write_text("")
    (here / "own/1.csv").write_text("new")
    ran = look("retry", "--failed")
    words = "submitted, fit.py, own/1.csv have changed; data/c is new; data/a is gone. The"
    assert words in ran.stderr
    assert source.told == [("retry", 3, (), None, 1.0, 1.0)] * 2
    (here / "data/a").write_text("")
    (here / "data/c").unlink()
    submit(version=2)
    (here / "fit.py").chmod(0o755)
    assert "since version 2 was sent, fit.py has changed." in look("retry", "--failed").stderr


def test_the_new_ones_are_sent(
    look: Look, submit: Callable[..., None], source: FakeSource, here: Path
) -> None:
    submit()
    (here / "fit.py").write_text("new")
    (here / "data/a").unlink()
    (here / "own/1.csv").write_text("other")
    source.sent = {blob_of(here / name).digest: b"" for name in ("fit.py", "own/1.csv")}
    ran = look("retry", "--failed", "--refresh", "--json")
    assert json.loads(ran.stdout) == {
        "bag": 3,
        "count": 2,
        "changed_inputs": ["fit.py", "own/1.csv", "data/a"],
        "inputs_version": 2,
    }
    changes = InputChanges(
        inputs=(Placed(path="fit.py", blob=blob_of(here / "fit.py")),),
        removed=("data/a",),
        manifest={"own/1.csv": blob_of(here / "own/1.csv")},
    )
    assert source.told == [("retry", 3, (), None, 1.0, 1.0, ("changes", changes))]
    ran = look("retry", "3", "--failed", "--refresh")
    words = "2 failed tasks will run again with version 2 of its inputs: fit.py, own/1.csv have"
    assert words in ran.stdout


def test_a_file_that_is_gone_is_used_as_it_was_sent(
    look: Look, submit: Callable[..., None], source: FakeSource, here: Path
) -> None:
    submit()
    (here / "fit.py").unlink()
    words = "note: fit.py is not here any more: the tasks get it as it was sent"
    assert words in look("retry", "--failed").stderr
    assert words in look("retry", "--failed", "--refresh").stderr
    assert source.told == [("retry", 3, (), None, 1.0, 1.0)] * 2


def test_a_bag_of_another_machine(
    look: Look, submit: Callable[..., None], source: FakeSource, here: Path
) -> None:
    submit(from_host="laptop")
    (here / "fit.py").write_text("new")
    assert "since bag 3 was submitted on laptop, fit.py has" in look("retry", "--failed").stderr
    for name in ("fit.py", "data/a", "data/b", "own/1.csv"):
        (here / name).unlink()
    assert look("retry", "--failed").stderr == ""
    told = refusal(look)
    assert "none of the input files of bag 3 is here: it was submitted on laptop" in told
    assert len(source.told) == 2


def test_bags_without_files_of_this_machine(
    look: Look, submit: Callable[..., None], source: FakeSource
) -> None:
    submit()
    source.named_inputs.sources, source.named_inputs.task_inputs = [], []
    told = refusal(look)
    assert "does not say where the input files of bag 3 came from" in told
    source.named_inputs.inputs = []
    assert "no input files" in refusal(look)
    source.view = bag(failed=2, calls=True)
    assert "functions" in refusal(look)
    assert look("retry", "--failed").stderr == ""


def test_another_server_gets_only_what_we_have_sealed(
    submit: Callable[..., None], source: FakeSource, here: Path
) -> None:
    submit()
    (here / "secret").write_text("secret")
    (here / "fit.py").write_text("new")
    assert input_changes.compare(source, source.view, remote=True).changed == ["fit.py"]
    source.named_inputs.sources[0] = InputSource(path=str(here / "secret"), to="fit.py")
    with pytest.raises(BadFile, match="you did not submit bag 3 on this machine"):
        input_changes.compare(source, source.view, remote=True)
    assert input_changes.compare(source, source.view, remote=False).changed == ["secret"]


def test_more_files_for_an_open_bag_are_sealed_anew(
    submit: Callable[..., None], source: FakeSource, here: Path
) -> None:
    submit()
    source.view = bag(failed=2, open=True)
    (here / "own/2.csv").write_text("2")
    found = input_changes.compare(source, source.view, remote=True)
    assert list(found.changes.manifest) == ["own/2.csv"]
    view = found.view
    keys = [*view.manifest, "own/2.csv"]
    assert found.changes.sources_seal == seal(view.sources, view.task_inputs, keys)
