"""The server asks; one module of it holds core's state."""

import re
from pathlib import Path

SERVER = Path(__file__).parents[2] / "src" / "covey" / "server"
HOLDER = SERVER / "decider.py"
# What others call so: of a request, of uvicorn, of a file that is being sent, of an explained task.
OTHERS = re.compile(r"\b(request|lifespan|holdings|task)\.state\b")
STATE = re.compile(r"\.state\b|\.scheduler\b")


def mentions(path: Path) -> list[str]:
    lines = enumerate(path.read_text().splitlines(), 1)
    return [f"{path.name}:{number}" for number, line in lines if STATE.search(OTHERS.sub("", line))]


def test_only_the_decider_holds_cores_state() -> None:
    assert mentions(HOLDER)
    assert [one for path in SERVER.rglob("*.py") if path != HOLDER for one in mentions(path)] == []
