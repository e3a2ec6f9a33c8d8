"""The command line against a source of known answers."""

import pytest
from click.testing import CliRunner, Result

from covey.cli.main import covey
from covey.frontend import bag_places
from tests.unit.cli.source import FakeSource, Look


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    made = FakeSource()
    monkeypatch.setattr(bag_places, "reader", lambda config: made)
    monkeypatch.setattr(bag_places, "client", lambda config: made)
    monkeypatch.setattr(bag_places, "running_client", lambda config: made)
    return made


@pytest.fixture
def look(source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> Look:
    monkeypatch.setattr(bag_places, "PAGE", 2)
    runner = CliRunner()

    def invoke(*words: str, status: int = 0) -> Result:
        ran = runner.invoke(covey, words)
        assert ran.exit_code == status, (ran.output, ran.exception)
        return ran

    return invoke
