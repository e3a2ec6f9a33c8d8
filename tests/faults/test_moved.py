"""A server's directory is copied elsewhere, as docs/server.md says: its server goes on there."""

import json
import os
import shutil

from covey.client.embedded import is_held
from tests.faults.world import World, wait_until

SAVED = ("covey.db", "covey.db-wal", "files", "secrets.json", "tls")


def test_a_copy_of_the_directory_is_the_same_server(world: World) -> None:
    started = world.covey("serve", "--background", "--slots", "1", "--port", "0")
    assert started.returncode == 0, started.stderr
    assert "covey stop" in started.stderr
    again = world.covey("serve", "--background")
    assert "runs already" in again.stderr
    (world.root / "data").write_text("from a file\n")
    words = ("--input", "data", "--output", "copy", "--", "sh", "-c", "cat data | tee copy")
    ran = world.covey("run", *words)
    assert ran.returncode == 0, ran.stderr
    token = world.covey("token", "create", "laptop", "--owner", "ann").stdout.strip()
    assert world.covey("stop").returncode == 0
    wait_until(lambda: not is_held(world.directory))

    old, world.directory = world.directory, world.root / "moved"
    world.directory.mkdir(mode=0o700)
    for name in SAVED:
        if (old / name).is_dir():
            shutil.copytree(old / name, world.directory / name)
        elif (old / name).exists():
            shutil.copy2(old / name, world.directory / name)
    shutil.rmtree(old)
    found = {check["name"]: check for check in json.loads(world.covey("doctor", "--json").stdout)}
    assert found["record"]["verdict"] == "ok", found["record"]
    assert world.covey("serve", "--background", "--slots", "1").returncode == 0
    file = world.root / "token"
    file.write_text(token)
    os.chmod(file, 0o600)
    address = json.loads((world.directory / "server.json").read_text())["address"]
    there = ("--server", address, "--token-file", str(file))
    assert world.covey("bags", *there).returncode == 0, "its tokens are valid"
    assert "from a file\n" in world.covey("logs", "1").stdout
    pulled = world.covey("pull", "1", "-o", str(world.root / "out"))
    assert pulled.returncode == 0, pulled.stderr
    assert [path.read_text() for path in (world.root / "out").rglob("copy*") if path.is_file()]

    os.chmod(file, 0o644)
    refused = world.covey("bags", *there)
    assert refused.returncode == 2
    assert "chmod 600" in refused.stderr
    os.chmod(file, 0o600)
    assert "1 token of ann revoked" in world.covey("token", "revoke", "--owner", "ann").stderr
    assert "does not accept this token" in world.covey("bags", *there).stderr
    misspelt = world.covey("bags", COVEY_SERVR="x")
    assert "did you mean 'COVEY_SERVER'" in misspelt.stderr
    assert world.covey("stop").returncode == 0
