"""From options to a bag."""

from pathlib import Path

import click
import pytest

from covey.cli.submission import Request, _seconds, build, environment
from covey.core.space import Axis, Product, Range

PLAIN = Request((), False, None, 0.0, "", (), None, False, ("true",))


def seconds(text: str) -> float:
    return _seconds(click.Context(click.Command("x")), click.Option(["--limit"]), text)


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400), ("2 d", 172800)]
)
def test_limits(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "m", "-5", "5 weeks", "1h30m"])
def test_bad_limits(text: str) -> None:
    with pytest.raises(click.BadParameter, match="5m"):
        seconds(text)


def test_the_environment_that_tasks_get() -> None:
    here = {"PATH": "/bin", "HOME": "/home/me", "SECRET": "x", "LANG": "C"}
    assert environment((), here) == {"PATH": "/bin", "LANG": "C"}
    asked = ("SECRET", "A=1=2", "LANG=", "PATH=/x")
    assert environment(asked, here) == {"PATH": "/x", "LANG": "", "SECRET": "x", "A": "1=2"}
    for bad in ("NOPE", "=1"):
        with pytest.raises(click.UsageError):
            environment((bad,), here)


def test_a_plain_command_is_one_task() -> None:
    spec = build(PLAIN, 2)
    assert (spec.argv, spec.retries, spec.idempotent, spec.chdir) == (("true",), 2, True, "")
    assert spec.owner
    assert spec.key
    assert spec.key != build(PLAIN, 2).key


def test_everything_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = PLAIN._replace(
        parameters=("x=1..3",), retries=0, limit=5.0, name="n", chdir=".", not_idempotent=True
    )
    spec = build(asked, 2)
    assert spec.space == Product((Axis("x", Range("1", "1", 3)),))
    assert (spec.retries, spec.limit_seconds, spec.name, spec.idempotent) == (0, 5.0, "n", False)
    assert spec.chdir == str(tmp_path)
