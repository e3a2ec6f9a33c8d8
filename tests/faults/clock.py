"""Another time for single processes, by libfaketime; the machine's own clock is left alone."""

from pathlib import Path

FAKETIME = "faketime/libfaketime.so.1"


class FakeClock:
    def __init__(self, path: Path, seconds: int = 0) -> None:
        self.path = path
        self.jump(seconds)

    def jump(self, seconds: int) -> None:
        """Replaced, not written: the reader must never find it half there."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self.path)

    def environment(self, monotonic: bool = False) -> dict[str, str]:
        """Of a process that shall believe it. `monotonic`: the other clock jumps too, as if that
        time had really passed."""
        [library] = list(Path("/usr/lib").glob(f"*/{FAKETIME}"))
        found = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.path),
            "FAKETIME_NO_CACHE": "1",
        }
        return found if monotonic else {**found, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
