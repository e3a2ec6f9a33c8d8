"""Which modules travel with workers, and how much of them."""

import ast
import sys
import threading
import time
from pathlib import Path

import pytest

from covey.core.errors import InvalidBag
from covey.executor import modules
from covey.executor.modules import Modules, TooMuch


def test_a_package_travels_with_its_source_only(tmp_path: Path) -> None:
    (tmp_path / "kit/sub").mkdir(parents=True)
    for name in ("kit/__init__.py", "kit/sub/part.py", "kit/data.bin", "kit/sub/.hidden"):
        (tmp_path / name).write_text("x = 1\n")
    read = Modules([tmp_path / "kit"]).read()
    assert sorted(read.files) == ["kit/__init__.py", "kit/sub/part.py"]
    assert sorted(read.names()) == ["kit", "kit.sub.part"]
    assert read.changed() == ""
    (tmp_path / "kit/sub/part.py").write_text("x = 1000\n")
    assert read.changed() == str(tmp_path / "kit/sub/part.py")


def test_what_is_too_large_or_unknown_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "MOST_BYTES", 10)
    (tmp_path / "large.py").write_text("x = 'too much'\n")
    with pytest.raises(TooMuch, match="does not fit"):
        Modules([tmp_path / "large.py"]).read()
    for unknown in ("no_such_module", "no/such.py", "sys", 3):
        with pytest.raises(InvalidBag, match="modules: "):
            Modules([unknown])  # type: ignore[list-item]


def test_beside_the_program_what_is_too_large_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small_one.py").write_text("import large_one\n")
    (tmp_path / "large_one.py").write_text("x = 'this has many more bytes than may travel'\n")
    (tmp_path / "main.py").write_text("def f():\n    import small_one\n")
    monkeypatch.setattr(modules, "MOST_BYTES", 30)
    main = sys.modules["__main__"]  # in a process of pytest-xdist it is no file
    monkeypatch.setattr(main, "__file__", str(tmp_path / "main.py"), raising=False)
    monkeypatch.setattr(main, "__spec__", None, raising=False)
    read = Modules(None).read()
    assert list(read.files) == ["small_one.py"]
    assert read.left_out == ["large_one.py"]


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    source = tmp_path / "main.py"
    source.write_text(
        "import one, two.part as t, \\\n    three  # import not_this\n"
        "from four.part import x; import five\n"
        "try: import six\n"
        "except ImportError: from seven import y\n"
        "def f():\n\timport eight\n"
        "from . import no\nfrom .no import no_2\nimport_no = 1\nx = 'é' # \n"
    )
    names = "one two three four five six seven eight"
    assert modules._imports(source) == set(names.split())
    source.write_bytes(b"\xff\xfe not Python (\nimport one\n")
    assert modules._imports(source) == {"one"}
    assert modules._imports(tmp_path / "none.py") == set()


class SlowGarbage:
    """When it is collected, other threads have their turn; then there is a new one."""

    collected_until = 0.0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        if time.monotonic() < self.collected_until:
            time.sleep(0.0005)
            SlowGarbage()


def test_looking_for_imports_disturbs_no_other_thread_that_parses(tmp_path: Path) -> None:
    """Python 3.11 counts the depth of `ast` objects for all threads together: if one has its turn
    while another makes them (garbage is collected then), `ast.parse` raises SystemError."""
    source = tmp_path / "main.py"
    source.write_text("import one\n" + "y = [1, [2, [3, [4]]]]\n" * 500)
    SlowGarbage.collected_until = time.monotonic() + 60
    ended = threading.Event()
    found: list[set[str]] = []

    def search() -> None:
        while not ended.is_set():
            found.append(modules._imports(source))

    thread = threading.Thread(target=search)
    thread.start()
    try:
        for _ in range(3):
            SlowGarbage()
        for _ in range(8):
            ast.parse(source.read_text())
    finally:
        ended.set()
        thread.join()
        SlowGarbage.collected_until = 0.0
    assert found[0] == {"one"}
