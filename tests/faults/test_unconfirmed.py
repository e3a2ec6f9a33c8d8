"""A server stops answering in the middle of a submission: asked again with the key that was
printed, it makes no second bag."""

import os
import re
import signal

from covey.client.embedded import read_record
from tests.faults.world import World

WORDS = ("submit", "--", "true")


def test_asked_again_with_the_key_it_is_the_same_bag(world: World) -> None:
    server = world.serve("--pilots", "0")
    found = read_record(world.directory)
    assert found is not None
    (world.root / "token").write_text(found.token)
    (world.root / "token").chmod(0o600)
    there = ("--server", found.address, "--token-file", "token")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        first = world.covey(*WORDS[:1], *there, *WORDS[1:])
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert first.returncode == 1
    key = re.search(r"--key (\w+)", first.stderr)
    assert key is not None, first.stderr
    again = world.covey("submit", *there, "--key", key[1], "--", "true")
    assert again.stdout.split() == ["1"], again.stderr
    assert world.covey("bags", "--json", *there).stdout.count('"id":') == 1
