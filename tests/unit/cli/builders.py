"""Views as a server would answer them."""

from typing import Any

from covey.wire import BagView, ResultRow


def bag(**facts: Any) -> BagView:
    known: dict[str, Any] = {
        "id": 3, "name": "", "owner": "me", "argv": ["echo", "{x}"], "names": ["x"],
        "status": "running", "total": 10, "done": 0, "failed": 0, "created": 1000.0,
    }  # fmt: skip
    return BagView(**{**known, **facts})


def row(task: int = 0, **facts: Any) -> ResultRow:
    known: dict[str, Any] = {
        "row": task, "task": task, "values": [task], "outcome": "ok", "counted": True,
        "exit_code": 0, "signal": 0, "attempt": f"1.{task}", "pilot": 1, "host": "node1",
        "sent": 1.0, "fetched": 1.0, "started": 1.0, "ended": 2.0, "delivered": 2.0,
        "wall_seconds": 1.0, "cpu_seconds": 0.5, "memory_kb": 2048, "stdout_bytes": 3,
        "stderr_bytes": 0, "message": "", "output": "out",
    }  # fmt: skip
    return ResultRow(**{**known, **facts})
