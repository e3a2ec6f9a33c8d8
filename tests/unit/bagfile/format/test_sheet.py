"""What is wrong with a file: line, key, what was expected, a suggestion."""

from pathlib import Path

import pytest

from covey.bagfile import parse_sheet, read_sheet
from covey.core.errors import InvalidBag
from tests.unit.bagfile.reading import draft

C = "command = 'true'\n"


def complaint(text: str, here: Path | None = None) -> str:
    with pytest.raises(InvalidBag) as caught:
        draft(text, here)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (C + "nmae = 'x'", "bag.toml:2: nmae: there is no such key; did you mean 'name'?"),
        (
            C + "\n[resources]\ncores = 1\nmemroy = '1 GB'",
            "bag.toml:5: resources.memroy: there is no such key; did you mean 'memory'?",
        ),
        (C + "[resources]\nwalltime = '1h'", "no such key; did you mean 'time'?"),
        (C + "env = 1", "did you mean 'environment'?"),
        (C + "[resources.when]\nn = 1", "bag.toml:2: resources.when: expected tables with the"),
        (C + "zzz = 1", "bag.toml:2: zzz: there is no such key; a bag file has name, notes"),
        (C + "[retries]\nzzz = 1", "[retries] has count, memory, time, overtimes"),
        (C + "retries = 3", "bag.toml:2: retries: expected a table: write [retries], then"),
        (C + "name = 3", "bag.toml:2: name: expected text in quotes, not 3"),
        (C + "name = 'a\\nb'\nopen = 'yes'", "bag.toml:3: open: expected true or false, not 'yes'"),
        (C + 'name = "a\\nb"', "expected one line"),
        (C + "breaker = -1", "breaker: expected a whole number from 0 to 1,000,000, not -1"),
        (C + "breaker = 1.5", "expected a whole number from 0 to 1,000,000, not 1.5"),
        (C + "breaker = true", "not true"),
        (C + "breaker = 0xFFFFFFFFFFFFFFFFFFFF", "the number is too large"),
        (C + "[resources]\nmemory = 2", "a size needs its unit: '2 MB' or '2 GB'"),
        (C + "[resources]\nmemory = '2 QB'", "a size such as '500 MB' or '2 GB', not '2 QB'"),
        (C + "[resources]\ncores = 0", "resources.cores: expected a whole number from 1"),
        (C + "[resources]\ntime = 'soon'", "90s, 5m, 2h, 1d, 1:30:00; not 'soon'"),
        (C + "[resources]\ntime = -1", "out of range"),
        (C + "[retries]\nmemory = 'more'", "'x2' or '+50%'; not 'more'"),
        (C + "[retries]\nmemory = 'x0.5'", "up to x100"),
        (C + "[validate]\nexit = [0, 256]", "bag.toml:3: validate.exit[1]: expected a whole"),
        (C + "outputs = ['a', '../b']", "bag.toml:2: outputs[1]: ../b is not in the task's"),
        (C + "outputs = '/b'", "outputs[0]: /b is not in"),
        (C + "outputs = ['a', 'x[9-0]']", "outputs[1]: the output pattern 'x[9-0]' is not valid:"),
        (C + "optional_outputs = './'", "optional_outputs[0]: the output pattern './' matches"),
        (C + "outputs = 'x{sed}'\n[parameters]\nseed = 1", "parameter sed; did you mean 'seed'?"),
        (C + "[parameters]\nx = '1..y'", "bag.toml:3: parameters.x: 1..y is not a range"),
        (C + "[parameters]\nx = []", "the list is empty"),
        (C + "[parameters]\nx = [1, true]", "write 'true' in quotes"),
        (C + "[parameters]\nx = [1, inf]", "is not a finite number"),
        (C + "[parameters]\nx = [[1]]", "text or a number, not a list"),
        (C + "[parameters]\nx = 1979-05-27", "text or a number, not 1979-05-27"),
        (C + "[parameters]\nx = {from = 1}", "expected {from = 0, to = 1, step = 0.1}"),
        (C + "[parameters]\nx = {from = 1, to = 2, step = 0}", "the step is zero"),
        (C + "[parameters]\nx = {file = 'no.txt'}", "No such file"),
        (C + "[parameters]\ntask = 1", "{task} is the task's number"),
        (C + "[parameters]\na-b = 1", "is not a name for a parameter"),
        (C + "parameters = 3", "write [parameters]"),
        (C + "zip = ['a', 'b']\n[parameters]\na = 1\nbb = 2", "no parameter b; did you mean 'bb'"),
        (C + "zip = ['a']\n[parameters]\na = 1", "two or more"),
        (C + "zip = ['a', 'b']\n[parameters]\na = [1]\nb = [1, 2]", "equal lengths: a has 1"),
        (C + "rows = 'x.dat'", "Call it .csv, .tsv, .jsonl or .txt"),
        (C + "rows = 'none.csv'", "bag.toml:2: rows: there is no file none.csv"),
        (C + "inputs = [1]", "bag.toml:2: inputs[0]: expected a path, a URL or"),
        (C + "inputs = [{form = 'x'}]", "an input has no key 'form'; did you mean 'from'?"),
        (C + "inputs = [{to = 'x'}]", "either from = 'PATH' or url"),
        (C + "inputs = ['ftp://x/y']", "http:// and https:// only"),
        (C + "inputs = ['https://x/']", "no name for the file"),
        (C + "inputs = [{url = 'https://x/y', sha256 = 'abc'}]", "64 hexadecimal digits"),
        (C + "inputs = [{from = 'x', sha256 = 'abc'}]", "are for a url"),
        (C + "[environment]\nA = true", "environment.A: expected text in quotes, not true"),
        (C + "[environment]\ninherit = ['NOPE']", "NOPE is not set here; write NOPE = 'VALUE'"),
        (C + "chdir = 'nowhere'", "bag.toml:2: chdir: there is no such directory: nowhere"),
        (C + "chdir = '/'\ninputs = 'x'", "chdir: 'inputs' needs a directory"),
        (C + "chdir = '/'\noutputs = 'x'", "chdir: 'outputs' needs a directory"),
        (C + "[[resources.when]]\nn = 1\ncores = 2", "bag.toml:3: resources.when[0].n: there"),
        (C + "[[resources.when]]\ncores = 2", "expected a condition on a parameter"),
        (
            C + "[parameters]\nn = 1\n[[resources.when]]\nn = 1",
            "bag.toml:4: resources.when[0]: expected a condition",
        ),
        (
            C + "[parameters]\nn = 1\n[[resources.when]]\nn = '9..1'\ncores = 2",
            "bag.toml:5: resources.when[0].n: no number is in 9..1: write '1..9'",
        ),
        (
            C + "[parameters]\nmodel = 1\n[[resources.when]]\nmodle = 1\ncores = 2",
            "resources.when[0].modle: there is no parameter and no resource of this name; "
            "did you mean 'model'?",
        ),
        (C + "memory = '1 GB'", "no such key; 'memory' belongs in the table [resources]"),
        (C + "limit = '5m'", "limit: there is no such key; 'time' belongs in the table [res"),
        (C + "requirements = 'true'", "; 'requirements' belongs in the table [policy]"),
        ("name = 'x'", "bag.toml: there is no command: write command"),
        (
            "[parameters]\nx = '1..3'\ncommand = 'echo {x}'",
            "bag.toml:3: parameters.command: this line belongs to the table [parameters]; "
            "write it above all tables",
        ),
        ("command = ''", "bag.toml:1: command: the command is empty"),
        ("command = []", "the command is empty"),
        ("command = 3", "expected text, or a list of words, not 3"),
        ("command = ['a', true]", "but one of them is true"),
        ("command = 'echo \"a'", "cannot be split into words: no closing quotation"),
        ("command = 'echo a | wc'", "| needs a shell: write script"),
        (C + "script = 'true'", "bag.toml:2: script: there is also a command"),
        (C + "args = 'x'", "bag.toml:2: args: args are for a script"),
        ("command = 'echo {sed}'\n[parameters]\nseed = 1", "bag.toml:1: command: the command has"),
        ("script = 'true'\nargs = '{sed}'\n[parameters]\nseed = 1", "bag.toml:2: args: the"),
        (C + "[validate]\ncheck = 'test {n}'\n[parameters]\nn = 1", "write $n for the value"),
        (C + "[validate]\nfiles = '**/x'", "** is not supported here"),
        ("name = x", "bag.toml:1: this is not TOML: invalid value; text needs quotes"),
        ("name = 'x'\nname = 'y'", "bag.toml:2: this is not TOML"),
        ("a = '''", "bag.toml:1: this is not TOML"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "9" * 5000, "bag.toml"),
    ],
)  # fmt: skip
def test_complaints(text: str, told: str, tmp_path: Path) -> None:
    assert told in complaint(text, tmp_path)


def test_all_of_them_at_once_in_the_order_of_the_file() -> None:
    told = complaint("nmae = 1\ncommand = 3\n[resources]\ncores = 'x'\n[retries]\ncuont = 1\n")
    assert [line.split(": ")[:2] for line in told.splitlines()] == [
        ["bag.toml:1", "nmae"],
        ["bag.toml:2", "command"],
        ["bag.toml:4", "resources.cores"],
        ["bag.toml:6", "retries.cuont"],
    ]


def test_there_is_an_end_to_complaints() -> None:
    told = complaint(C + "\n".join(f"x{n} = 1" for n in range(100)))
    assert told.splitlines()[-1] == "… and 80 more"
    assert len(told.splitlines()) == 21


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_bytes(b"name = '\xff'")
    for name, told in (
        ("sweep.toml", "not text in UTF-8"),
        ("swep.toml", "sweep.toml'?"),
        ("no/such.toml", "no directory"),
        (".", "Is a directory"),
    ):
        with pytest.raises(InvalidBag, match=told):
            read_sheet(tmp_path / name)


def test_options_come_first_and_are_named_by_themselves() -> None:
    sheet = parse_sheet(C + "[resources]\nmemory = 3\ncores = 0", "bag.toml", "/x")
    sheet.set(("resources", "memory"), "2 QB", "--memory 2QB")
    from covey.bagfile import read_draft

    with pytest.raises(InvalidBag) as caught:
        read_draft(sheet, {}, print)
    told = str(caught.value).splitlines()
    assert told[0].startswith("--memory 2QB: expected a size")
    assert told[1].startswith("bag.toml:4: resources.cores: ")
    assert len(told) == 2
