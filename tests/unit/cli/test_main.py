"""The command itself: its help, its speed, and how it ends."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest

from covey import __version__
from covey.cli.main import COMMANDS, LazyGroup, covey

PROBE = """
import sys
sys.argv = ["covey", "--help"]
import covey.cli.main
try:
    covey.cli.main.main()
finally:
    heavy = {"msgspec", "covey.core", "covey.config", "http.client", "json", "asyncio"}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


def run(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """The real thing, in a directory and a home without anything."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
    env = {**clean, "HOME": str(cwd), "XDG_CONFIG_HOME": str(cwd), **environ}
    return subprocess.run(
        [sys.executable, "-P", "-m", "covey", *words],
        cwd=cwd, env=env, text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def every_command() -> list[tuple[str, click.Command]]:
    context = click.Context(covey)
    found: list[tuple[str, click.Command]] = []
    for name in covey.list_commands(context):
        command = covey.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            found += [(f"{name} {inner}", one) for inner, one in command.commands.items()]
        else:
            found.append((name, command))
    return found


@pytest.mark.parametrize(("name", "command"), every_command())
def test_every_command_has_an_example_and_json(name: str, command: click.Command) -> None:
    text = command.get_help(click.Context(command, info_name=name))
    assert re.search(rf"^  .*covey {name}", text, re.MULTILINE)
    assert "[x>" not in text
    if name != "serve":
        assert "--json" in text


def test_summaries_are_sentences() -> None:
    for lazy in COMMANDS.values():
        assert re.fullmatch(r"[A-Z].{5,50}\.", lazy.summary)
    assert isinstance(covey, LazyGroup)


def test_help_loads_nothing_and_is_quick(tmp_path: Path) -> None:
    """Judged by its processor time, which other processes hardly change."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run(
            [sys.executable, "-P", "-c", PROBE], capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert ran.stderr.strip() == "[]"
    assert "_COVEY_COMPLETE" in ran.stdout
    assert min(times) < 0.3, "about 0.1 s"


def test_version(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout == f"covey {__version__}\n"


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["bgas"], 2, "did you mean 'bags'?"),
        (["show", "--jsno"], 2, "for help: covey show --help"),
        (["run"], 2, "COMMAND"),
        (["run", "-p", "x=1..y", "--", "true"], 2, "-p x=1..y"),
        (["run", "-p", "x=1..2", "-p", "x=3", "--", "true"], 2, "given twice"),
        (["run", "--zip", "-p", "x=1..2", "-p", "y=3", "--", "true"], 2, "equal lengths"),
        (["run", "--time", "soon", "--", "true"], 2, "90s, 5m"),
        (["run", "--env", "NO_SUCH", "--", "true"], 2, "--env NO_SUCH=VALUE"),
        (["run", "--chdir", "nowhere", "--", "true"], 2, "no such directory"),
        (["run", "no-such-program"], 2, "no command 'no-such-program'"),
        (["retry"], 2, "covey retry --failed"),
        (["bags", "--server", "foo"], 2, "server address 'foo': write it like http"),
        (["bags", "--server", "https://localhost"], 2, "--token-file"),
        (["bags", "--server", "https://localhost", "--token-file", "none"], 2, "No such file"),
    ],
)
def test_misuse_is_one_or_two_lines(
    tmp_path: Path, words: list[str], status: int, told: str
) -> None:
    ran = run(*words, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (status, "")
    assert ran.stderr.startswith("covey: ")
    assert told in ran.stderr
    assert len(ran.stderr.splitlines()) <= 2


@pytest.mark.parametrize("words", [[], ["site"], ["token"], ["config"], ["policy"]])
def test_a_group_alone_prints_its_help(tmp_path: Path, words: list[str]) -> None:
    ran = run(*words, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(" ".join(["Usage: covey", *words]))
    assert "for help:" not in ran.stderr


def test_bad_settings_are_misuse_and_verbose_shows_where(tmp_path: Path) -> None:
    (tmp_path / "covey.toml").write_text("drr = 'x'")
    ran = run("bags", cwd=tmp_path)
    assert ran.returncode == 2
    assert "did you mean 'dir'?" in ran.stderr
    assert "Traceback" in run("bags", "-v", cwd=tmp_path).stderr
    assert "Traceback" in run("-v", "bags", cwd=tmp_path).stderr


def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    """As in `covey … | head -1`, with more than a pipe can hold."""
    code = (
        "from covey.cli import main; from covey.cli.server import settings;"
        "settings.configuration.SETTINGS['dir'] ="
        "settings.configuration.SETTINGS['dir']._replace(text='x' * 1000000); main.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code, "config", "show"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.read(10)
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure_and_nothing_takes_their_place(
    tmp_path: Path, closed: str
) -> None:
    code = (
        "import os\nfrom covey.cli.main import covey, main\n"
        "def look(**options):\n"
        "    print('said'), print('told', file=__import__('sys').stderr)\n"
        "    open('seen', 'w').write(str(os.open('seen', os.O_RDONLY) > 2))\n"
        "covey.main = look\nmain()"
    )
    line = f'exec "$0" -P -c "$1" {closed}'
    ran = subprocess.run(
        ["sh", "-c", line, sys.executable, code],
        cwd=tmp_path, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "" if " >&-" in f" {closed}" else "said\n")
    assert ran.stderr == ("" if "2>&-" in closed else "told\n")
    assert (tmp_path / "seen").read_text() == "True"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("covey run swe", "file"),
        ("covey run -- python3 fi", "file"),
        ("covey run --rows ca", "file"),
        ("covey submit --chdir da", "dir"),
        ("covey --dir da", "dir"),
        ("covey results -o re", "file"),
        ("covey pull -o re", "dir"),
        ("covey classad fmt po", "file"),
        ("covey resu", "plain"),
    ],
)
def test_a_shell_completes_names_of_files(tmp_path: Path, line: str, kind: str) -> None:
    words = line.split()
    ran = run(
        cwd=tmp_path, _COVEY_COMPLETE="bash_complete", COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
    )  # fmt: skip
    assert {told.partition(",")[0] for told in ran.stdout.splitlines()} == {kind}


def test_flags_outrank_the_environment(tmp_path: Path) -> None:
    ran = run("config", "show", "--json", "--dir", "here", cwd=tmp_path, COVEY_DIR="there")
    shown = json.loads(ran.stdout)
    assert shown["dir"] == {
        "value": "here",
        "origin": "flag --dir",
        "meaning": "Where the record, the lock and the log of the embedded server are.",
    }
    table = run("config", "show", cwd=tmp_path, COVEY_LOCAL_SLOTS="3").stdout
    assert re.search(r"local.slots +3 +environment, COVEY_LOCAL_SLOTS", table)
