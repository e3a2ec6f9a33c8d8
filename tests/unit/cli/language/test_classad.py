"""`covey classad`: eval, check and fmt."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from covey.cli.main import covey
from covey.cli.shared.classad_findings import findings, has_comments, laid_out

HOST = '[Name = "is3.myhost"; ErrorRate = 0.08; NumCpus = 8]'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "host.ad").write_text(HOST)
    return tmp_path


def ran(*words: str, given: str = "", status: int = 0) -> Result:
    found = CliRunner().invoke(covey, ("classad", *words), input=given)
    assert found.exit_code == status, (found.output, found.exception)
    return found


# -- eval ----------------------------------------------------------------------------------------


def test_eval_prints_the_value(here: Path) -> None:
    assert ran("eval", "1 + 2 * 3").output == "7\n"
    assert ran("eval", 'strcat("a", 1)').output == '"a1"\n'
    assert ran("eval", "NoSuchName").output == "undefined\n"


def test_eval_stands_in_an_ad(here: Path) -> None:
    assert ran("eval", "errorrate < 0.1 && NumCpus >= 4", "--ad", "host.ad").output == "true\n"
    assert ran("eval", "NumCpus", "--ad", "-", given=HOST).output == "8\n"
    wide = ran("eval", "TARGET.NumCpus >= Need", "--set", "Need=2*8", "--target", "host.ad")
    assert wide.output == "false\n"
    both = ran("eval", "a + b", "--set", "a=1", "--set", "b=a + 1")
    assert both.output == "3\n"


def test_eval_shows_what_was_asked_for(here: Path) -> None:
    shown = ran("eval", "NumCpus * 2 + Extra", "--ad", "host.ad", "--explain").output
    assert shown == "undefined\n  extra = undefined\n  numcpus = 8\n"


def test_eval_for_programs(here: Path) -> None:
    told = json.loads(ran("eval", "NumCpus / 2.0", "--ad", "host.ad", "--json").output)
    assert told == {"value": 4.0, "type": "real", "used": {"numcpus": 8}}


def test_an_error_is_a_failure(here: Path) -> None:
    assert ran("eval", '1 + "one"', status=1).output == "error\n"
    assert "no function flor; did you mean floor" in ran("eval", "1 + flor(2)", status=1).output
    assert "pattern is not supported" in ran("eval", 'regexp("(?=a)", "a")', status=1).output


def test_eval_points_at_what_it_does_not_understand(here: Path) -> None:
    told = ran("eval", "1 + ", status=2).output
    assert "EXPRESSION: line 1, column 5: expected" in told
    assert "    1 + \n" in told or "  1 + \n" in told
    assert "^" in told
    assert "host.bad" in ran("eval", "1", "--ad", "host.bad", status=2).output
    (here / "broken.ad").write_text("[a = ]")
    assert "broken.ad: line 1" in ran("eval", "1", "--ad", "broken.ad", status=2).output
    assert "NAME=EXPR" in ran("eval", "1", "--set", "x", status=2).output
    assert "--set x" in ran("eval", "1", "--set", "x=(", status=2).output


# -- check ---------------------------------------------------------------------------------------


def test_check_finds_nothing_wrong(here: Path) -> None:
    assert "no mistakes found" in ran("check", "ErrorRate < 0.1", "--ad", "host.ad").output
    assert json.loads(ran("check", "ErrorRate < 0.1", "--json").output) == []


def test_check_suggests_near_names(here: Path) -> None:
    shown = ran("check", 'regxp("a", Name) || ErorRate < 1', "--ad", "host.ad", status=1).output
    assert "column 1: there is no function regxp; did you mean regexp" in shown
    assert "column 21: there is no attribute erorrate; did you mean ErrorRate?" in shown
    assert "\n" + " " * 22 + "^\n" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 +", "expected"),
        ("substr()", "substr takes 2 to 3 arguments, not 0"),
        ("size(1, 2)", "size takes 1 argument, not 2"),
        ('regexp("(a)\\\\1", "aa")', "this pattern is not supported"),
        ("a = 5", "expected"),
    ],
)
def test_findings(text: str, message: str) -> None:
    (found,) = findings(text, False, ())
    assert message in found.message


def test_check_reads_a_file(here: Path) -> None:
    (here / "policy.ad").write_text("[\n  a = 1;\n  b = siz({});\n]")
    shown = ran("check", "--file", "policy.ad", status=1).output
    assert "line 3, column 7: there is no function siz; did you mean size" in shown
    (told,) = json.loads(ran("check", "--file", "policy.ad", "--json", status=1).output)
    assert (told["line"], told["column"]) == (3, 7)
    assert told["message"] == "there is no function siz"
    assert told["suggestions"][0] == "size"
    assert "EXPRESSION" in ran("check", status=2).output


# -- fmt -----------------------------------------------------------------------------------------


def test_fmt_an_expression(here: Path) -> None:
    assert ran("fmt", "-e", "a<1&&b").output == "a < 1 && b\n"
    assert ran("fmt", "-e", "a<1&&b", "--check", status=1).output == ""
    ran("fmt", "-e", "a < 1 && b", "--check")
    assert json.loads(ran("fmt", "-e", "a<1", "--json").output) == {
        "formatted": "a < 1",
        "changed": True,
    }


def test_fmt_writes_files_again(here: Path) -> None:
    assert ran("fmt", "--check", "host.ad", status=1).output == "host.ad\n"
    assert (here / "host.ad").read_text() == HOST
    assert ran("fmt", "host.ad").output == ""
    assert (here / "host.ad").read_text().startswith('[\n    Name = "is3.myhost";\n')
    ran("fmt", "--check", "host.ad")
    assert ran("fmt", "-", given="[a=1]").output == "[\n    a = 1\n]\n"
    assert "give files" in ran("fmt", status=2).output


def test_fmt_keeps_comments_by_leaving_them_alone(here: Path) -> None:
    (here / "c.ad").write_text("[a=1; // one\n]")
    assert "comments" in ran("fmt", "c.ad", status=1).output
    assert "// one" in (here / "c.ad").read_text()
    assert not has_comments('[a = "http://x"]')


def test_the_examples_look_as_they_should() -> None:
    for path in (Path(__file__).parents[4] / "examples" / "policy").glob("*.ad"):
        assert laid_out(path.read_text()) == path.read_text(), path


def test_layout() -> None:
    nested = "[a = [b = [c = 1]; d = {1, 2}]; 'odd name' = 2]"
    laid = laid_out(nested)
    assert laid == laid_out(laid)
    assert "'odd name' = 2" in laid
    assert laid_out("[]") == "[]\n"
