"""What a person sees while waiting: a bar in a terminal and in a notebook, else nothing."""

import io
import sys
import types
from typing import Any

import pytest
from msgspec import structs

from covey.python import showing
from covey.python.listing import Listing
from tests.unit.cli.builders import bag
from tests.unit.python.fakes import Server, bag_of


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Handle:
    def __init__(self, shown: list[dict[str, str]]) -> None:
        self.shown = shown

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown.append(data)


class Notebook:
    """What IPython is in one; `displays` are the outputs of the cell, each with its versions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernel: object) -> None:
        self.displays: list[list[dict[str, str]]] = []
        shell = types.SimpleNamespace(kernel=kernel)
        inner = types.SimpleNamespace(display=self.display)
        outer = types.SimpleNamespace(get_ipython=lambda: shell, display=inner)
        monkeypatch.setitem(sys.modules, "IPython", outer)
        monkeypatch.setitem(sys.modules, "IPython.display", inner)

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        self.displays.append([data])
        return Handle(self.displays[-1])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    for name in ("CI", "TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    found = Server()
    found.view = structs.replace(found.view, ended=1010.0)
    return found


def wait(server: Server, **how: Any) -> None:
    def finish() -> None:
        server.view = structs.replace(server.view, status="finished", done=8)

    server.view = structs.replace(server.view, status="running", done=4)
    bag_of(server, lambda: None, finish).wait(**how)


def test_nothing_is_printed_into_a_pipe_unless_asked(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    wait(server)
    assert capsys.readouterr() == ("", "")
    wait(server, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "bag 3 fits: 6/10, 60%, 2 failed" in err
    assert err.endswith("bag 3 fits finished: 8 tasks done, 2 failed in 10 s\n")


def test_a_terminal_has_a_bar_and_the_last_words(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    wait(server)
    assert "█" in terminal.getvalue()
    assert terminal.getvalue().endswith("bag 3 fits finished: 8 tasks done, 2 failed in 10 s\n")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    wait(server, progress=False)
    assert terminal.getvalue() == ""


def test_a_notebook_has_one_output_that_is_replaced(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook(monkeypatch, kernel=object())
    wait(server)
    ((first, *_, last),) = notebook.displays
    assert "width:60%" in first["text/html"]
    assert "width:100%" in last["text/html"]
    assert "2 failed" in last["text/html"]
    assert "finished" in last["text/html"]
    assert last["text/plain"] == "bag 3 fits finished: 8 tasks done, 2 failed in 10 s"
    assert capsys.readouterr() == ("", "")


def test_ipython_in_a_terminal_is_no_notebook(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = Notebook(monkeypatch, kernel=None)
    wait(server)
    assert notebook.displays == []


def test_names_and_reasons_are_not_believed() -> None:
    shown = showing.bag_html(bag(name="<b>", status="paused", reason="<i>why</i>"))
    assert "&lt;b&gt;" in shown
    assert "paused: &lt;i&gt;why&lt;/i&gt;" in shown
    assert "<i>" not in shown


def test_a_bag_shows_itself_as_it_is_now(server: Server) -> None:
    shown = bag_of(server)
    server.view = structs.replace(server.view, done=7)
    assert "9/10" in (shown._repr_html_() or "")


def test_lists_are_tables() -> None:
    found = Listing([1, 2, 3], (["n", "word"], lambda one: (one, "<x>" * one)))
    assert repr(found).splitlines()[0].split() == ["n", "word"]
    assert "&lt;x&gt;" in found._repr_html_()
    assert list(found[1:]) == [2, 3]
    assert found == [1, 2, 3]
    assert found != [1]
    assert repr(Listing([], (["n"], lambda one: ()))) == "(none)"
