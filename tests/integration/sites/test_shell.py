"""Commands run for real, here and over an `ssh` without a network."""

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from covey.sites.commands import Command
from covey.sites.errors import Away, Unclear
from covey.sites.shell import (
    MARK,
    LocalShell,
    Shell,
    SshShell,
    put,
    remote_line,
    socket_folder,
)

FAKE_SSH = str(Path(__file__).parent / "fake-ssh")
ODD = ["", " ", "$HOME", "`id`", "a'b\"c", "\\", "*", "-n", "two\nlines", "é", ";", "#", "~", "!"]
LIAR = """\
#!/bin/sh
echo 'This account is not available'
case $* in *ControlMaster=yes*) exit 0;; esac
exit 1
"""
PRINT = ("/bin/sh", "-c", 'for word; do printf "<%s>" "$word"; done', "sh")


class Far:
    """A host behind `fake-ssh`."""

    def __init__(self, folder: Path, sockets: str = "") -> None:
        self.network = folder / "network"
        self.network.mkdir()
        self.shell = SshShell(
            "far", folder / sockets / "s", ("env", f"FAKE_NETWORK={self.network}", FAKE_SSH)
        )

    def calls(self) -> list[str]:
        return (self.network / "calls").read_text().splitlines()


@pytest.fixture
def far(tmp_path: Path) -> Far:
    return Far(tmp_path)


@pytest.fixture(params=["local", "ssh"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    return LocalShell() if request.param == "local" else Far(tmp_path).shell


def test_what_a_command_says(shell: Shell) -> None:
    command = Command(("/bin/sh", "-c", "cat; echo two >&2; exit 3"), b"one\n")
    output = shell.run(command, {})
    assert output == (3, "one\n", "two\n")


def test_words_arrive_as_they_are(shell: Shell) -> None:
    output = shell.run(Command((*PRINT, *ODD)), {})
    assert output.stdout == "".join(f"<{word}>" for word in ODD)


def test_environments_arrive_as_they_are(shell: Shell) -> None:
    environment = {f"ODD_{number}": word for number, word in enumerate(ODD)}
    text = "".join(f'printf "<%s>" "$ODD_{number}";' for number in range(len(ODD)))
    output = shell.run(Command(("/bin/sh", "-c", text)), environment)
    assert output.stdout == "".join(f"<{word}>" for word in ODD)


def test_a_command_that_is_not_there(shell: Shell) -> None:
    assert shell.run(Command(("covey-no-such-command",)), {}).status == 127


def test_a_command_that_hangs_is_stopped(shell: Shell, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = Command(("/bin/sh", "-c", f"echo $$ >{pid}; sleep 600; true"), b"", 0.5)
    with pytest.raises(Unclear, match=r"took longer than 0\.5 s"):
        shell.run(command, {})
    until = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid.read_text().strip()}") and time.monotonic() < until:
        time.sleep(0.02)
    assert time.monotonic() < until


def test_a_daemon_that_keeps_the_output_open_holds_nobody_up(shell: Shell) -> None:
    output = shell.run(Command(("/bin/sh", "-c", "sleep 5 & echo done"), b"", 4.0), {})
    assert output.stdout == "done\n"


def test_much_output(shell: Shell) -> None:
    output = shell.run(Command(("/bin/sh", "-c", "yes covey | head -n 200000")), {})
    assert len(output.stdout) == 200_000 * 6


def test_a_file_is_put(shell: Shell, tmp_path: Path) -> None:
    path, data = tmp_path / "it's a file", bytes(range(256)) * 100
    put(shell, str(path), data)
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.glob("it*")] == [path.name]


def test_a_file_that_cannot_be_put(shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(Unclear, match="cannot be written"):
        put(shell, str(tmp_path / "nowhere" / "file"), b"data")


def test_a_word_that_no_command_can_have(shell: Shell) -> None:
    with pytest.raises(Away):
        shell.run(Command(("echo", "a\0b")), {})


# -- SSH -----------------------------------------------------------------------------------


def test_one_connection_serves_all_commands(far: Far) -> None:
    for _ in range(5):
        far.shell.run(Command(("true",)), {})
    assert [call for call in far.calls() if call.startswith("far yes")] == ["far yes "]


def test_a_broken_connection_is_made_again(far: Far) -> None:
    far.shell.run(Command(("true",)), {})
    down = far.network / "far.down"
    down.touch()
    for _ in range(2):
        with pytest.raises(Away, match=r"cannot connect to far: .*No route to host"):
            far.shell.run(Command(("true",)), {})
    down.unlink()
    assert far.shell.run(Command(("echo", "there")), {}).stdout == "there\n"


def test_a_command_that_hangs_takes_its_connection_along(far: Far) -> None:
    with pytest.raises(Unclear, match="took longer"):
        far.shell.run(Command(("sleep", "600"), b"", 0.5), {})
    assert far.shell.run(Command(("echo", "there")), {}).stdout == "there\n"
    assert [call for call in far.calls() if "check" not in call] == [
        *("far yes ", "far no ", "far no exit", "far yes ", "far no "),
    ]


def test_a_folder_for_connections_that_was_swept_is_made_again(tmp_path: Path) -> None:
    far = Far(tmp_path, "swept")
    for _ in range(2):
        assert far.shell.run(Command(("echo", "there")), {}).stdout == "there\n"
        assert (tmp_path / "swept").stat().st_mode & 0o777 == 0o700
        shutil.rmtree(tmp_path / "swept")
    (tmp_path / "swept").mkdir()
    (tmp_path / "swept").chmod(0o755)
    with pytest.raises(Away, match="other users have access to it"):
        far.shell.run(Command(("true",)), {})


def test_a_command_whose_connection_breaks_may_have_run(far: Far, tmp_path: Path) -> None:
    (far.network / "far.cut").write_text("0.3")
    mark = tmp_path / "mark"
    with pytest.raises(Unclear, match=r"the connection to far broke: .*Broken pipe"):
        far.shell.run(Command(("touch", str(mark))), {})
    assert mark.exists()


def test_a_host_that_lets_nobody_run_commands(far: Far, tmp_path: Path) -> None:
    liar = tmp_path / "liar"
    liar.write_text(LIAR)
    liar.chmod(0o755)
    shell = SshShell("far", tmp_path / "socket", (str(liar),))
    with pytest.raises(Away, match="did not run the command"):
        shell.run(Command(("true",)), {})


@pytest.mark.parametrize("login", ["sh", "bash", "dash", "tcsh"])
def test_any_login_shell_will_do(login: str) -> None:
    words = [*ODD, "a!b", "c ! d", "!!", "\\0134", "ends in\n", "x" * 20_000]
    line = remote_line(("/bin/sh", "-c", f"cat; {PRINT[2]}", "sh", *words), {"ODD": "it's !"})
    done = subprocess.run([login, "-c", line], input=b"read", capture_output=True, timeout=60)
    wanted = "".join(f"<{word}>" for word in words)
    assert done.stdout.decode() == f"{MARK}\nread{wanted}"
    assert (done.returncode, done.stderr.decode()) == (0, f"{MARK}\n")


@pytest.mark.parametrize("host", ["", "-oProxyCommand=id"])
def test_a_host_that_would_be_an_option(tmp_path: Path, host: str) -> None:
    with pytest.raises(Away, match="is not a host name"):
        SshShell(host, tmp_path / "socket").run(Command(("true",)), {})


def test_the_end_of_a_shell_is_the_end_of_its_connection(far: Far) -> None:
    far.shell.run(Command(("true",)), {})
    far.shell.close()
    assert far.calls()[-1] == "far no exit"


def test_sockets_have_short_private_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    folder = socket_folder()
    assert len(str(folder / "123456")) + 17 < 104
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()


def test_shells_do_not_wait_for_one_another(tmp_path: Path) -> None:
    slow = threading.Thread(
        target=lambda: LocalShell().run(Command(("sleep", "2")), {}), daemon=True
    )
    slow.start()
    LocalShell().run(Command(("true",)), {})
    assert slow.is_alive()
    slow.join()
