"""The harness's end of the pipe to a tool's process (peer.py)."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import processes, rig
from bench.peers.environments import Environment, Tool
from bench.peers.peer import NotThere

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 5.0


class Link:
    """A tool's process, in a directory of its own. Requests are answered in turn."""

    def __init__(self, tool: Tool, environment: Environment, directory: Path) -> None:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment.variables}
        module = f"bench.peers.tools.{tool.module}"
        self.tool = tool
        self.directory = directory
        self._log = directory / "log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [environment.python, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=directory,
                env=variables,
            )
        self.traits: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:
        """Raises NotThere for what the tool has not, Broken for what went wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"request": request, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise rig.Broken(f"its program is gone: {self._last_words()}") from None
        line = self._process.stdout.readline()
        if not line:
            raise rig.Broken(f"its program has ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "not_there" in answer:
            raise NotThere(answer["not_there"])
        if "error" in answer and request != "poll":
            raise rig.Broken(answer["error"])
        return answer

    def start(
        self, workers: int, slots: int, retries: int = 0, durable: bool = False
    ) -> dict[str, Any]:
        self.traits = self.ask(
            "start", workers=workers, slots=slots, retries=retries, durable=durable
        )
        return self.traits

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "without a word"

    def kill(self) -> None:
        """The program alone; what it has started lives on."""
        processes.kill(self.pid)
        self._process.wait()

    def end(self) -> None:
        """With all that is below it."""
        processes.kill_tree(self.pid)


@contextmanager
def linked(where: rig.Rig, tool: Tool, environment: Environment) -> Iterator[Link]:
    link = Link(tool, environment, where.directory())
    try:
        yield link
    finally:
        link.end()
