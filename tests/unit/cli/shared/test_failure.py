"""With which status a command ends when something goes wrong."""

import pytest

from covey.cli.shared.failure import explain
from covey.core.errors import CoveyError, InvalidQuery, NotFound, Refused, ServerAway


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidQuery("no such column"), 2),
        (Refused(400, "bad", "no such column"), 2),
        (Refused(409, "not now", "it runs"), 1),
        (NotFound("no bag"), 1),
        (ServerAway("gone"), 1),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 1),
    ],
)
def test_statuses(error: BaseException, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(error, verbose=False) == status
    told = capsys.readouterr().err
    assert told.startswith("covey: ")
    assert "bug" not in told


def test_a_bug_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(KeyError("x"), verbose=False) == 1
    assert "this is a bug in covey: KeyError" in capsys.readouterr().err
    assert explain(CoveyError("y"), verbose=True) == 1
    assert "CoveyError: y" in capsys.readouterr().err
