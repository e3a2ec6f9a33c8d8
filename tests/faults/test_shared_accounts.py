"""Two people and one account on a real SSH host: what a task can find there, and what use it is.

The attacker's task runs under the same account as the other's pilot, without walls. covey refuses
such a site once both have tokens; here the other's pilot is one that came before that.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from covey.core.protocol.tokens import job_secret, one_word
from tests.faults.world import World, open_world, task_script, wait_until
from tests.testbed.ssh import SshHosts

# All that a program of the same account can read: its files there, and of processes what is shown.
LOOK = r"""
exec >SEEN 2>/dev/null
for process in /proc/[0-9]*; do tr '\0' '\n' <$process/cmdline; done
ls -R SITE HOME TMP
find SITE HOME TMP -type f -size -200k -exec cat {} +
"""


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def serve(world: World, sshd: SshHosts, **more: str) -> Path:
    place = world.root / "site-hosts"
    lines = "".join(f"{name} = {value}\n" for name, value in more.items())
    (world.root / "covey.toml").write_text(
        f'[local]\npilots = 0\n[serve]\nssh = "ssh -F {sshd.config}"\n'
        f'[sites.hosts]\ndriver = "ssh"\ninterval = "1s"\nidle = "60s"\nslots = 1\n'
        f'directory = "{place}"\n{lines}[sites.hosts.options]\nhosts = ["login:4"]\n'
    )
    world.serve()
    return place


def token(world: World, owner: str) -> None:
    made = world.covey("token", "create", f"for {owner}", "--owner", owner)
    assert made.returncode == 0, made.stderr


def site_says(world: World) -> str:
    return world.covey("explain", "site", "hosts").stdout


def test_a_task_finds_nothing_of_another_owners_pilot_that_is_of_use(
    world: World, sshd: SshHosts
) -> None:
    place = serve(world, sshd)
    go = world.root / "go"
    waits = task_script(f"until test -e {go}; do sleep 0.1; done")
    victim = world.submit(waits, 1, owner="ann")
    wait_until(lambda: world.running() == 1, 60, world.log_tail)
    seen = world.root / "seen"
    look = LOOK.replace("SEEN", str(seen)).replace("SITE", str(place))
    look = look.replace("HOME", str(sshd.hosts["login"].home)).replace("TMP", "/tmp/covey-pilot-*")
    attack = world.submit(f"{look}\nexit 0", 1, owner="eve")
    world.wait_over(attack)
    found = seen.read_text(errors="replace")
    assert "pilot-" in found, "it saw the place"
    [(job, key)] = world.rows("SELECT job, key FROM pilots WHERE owner = 'ann'")
    master = json.loads((world.directory / "secrets.json").read_text())["secret"]
    secret = job_secret(master, job)
    assert secret not in found, "the script and the start file are gone"
    assert key not in found, "the pilot's key is on no disk"
    # Had it seen the secret, in the spool of a batch system, it would be of no use.
    enrol = {"key": "key of the thief", "host": "eve", "slots": 1, "job": job, "site": "hosts"}
    assert shown(world, enrol, one_word(job, secret)) == 429
    assert len(world.rows("SELECT id FROM pilots WHERE job = ?", job)) == 1
    go.touch()
    world.wait_over(victim)
    world.check_results(victim, 1)


def shown(world: World, enrol: dict[str, object], secret: str) -> int:
    address = world.client().connection.endpoint.address
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    request = Request(f"{address}/pilot/v1/enrol", json.dumps(enrol).encode(), headers)
    try:
        with urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_pilot_file_that_somebody_replaced_is_not_run_and_the_site_says_so(
    world: World, sshd: SshHosts
) -> None:
    place = serve(world, sshd, running="1")
    first = world.submit("true", 1)
    world.wait_over(first)
    [staged] = place.glob("pilot-*.pyz")
    stolen = world.root / "stolen"
    staged.write_text(f"import shutil, sys; shutil.copy(sys.argv[-1], {str(stolen)!r})\n")
    [(pilot,)] = world.rows("SELECT id FROM pilots WHERE status <> 'left'")
    assert world.covey("dismiss", str(pilot)).returncode == 0
    second = world.submit("true", 1)
    words = f"the pilot file {staged} was changed"
    wait_until(lambda: words in site_says(world), 60, lambda: site_says(world) + world.log_tail())
    assert not stolen.exists()
    # The server looks at the file before it submits, some time later, and puts it there again.
    digest = hashlib.sha256((world.directory / "pilot.pyz").read_bytes()).hexdigest()
    assert staged.name == f"pilot-{digest[:16]}.pyz"
    left = list(place.glob("hosts/*/jobs/*/start.json")) + list(place.glob("hosts/*/jobs/*/script"))
    assert not left
    assert not world.bag(second).over


def test_a_site_that_owners_would_share_without_walls_is_refused(
    world: World, sshd: SshHosts
) -> None:
    serve(world, sshd)
    token(world, "ann")
    bag = world.submit("true", 1, owner="ann")
    world.wait_over(bag)
    token(world, "eve")
    attack = world.submit("true", 1, owner="eve")
    words = "tasks of ann and eve would run under one account"
    wait_until(lambda: words in site_says(world), 30, lambda: site_says(world))
    told = world.covey("explain", str(attack)).stdout
    assert words in told, told
    added = world.covey("site", "add", "more", "driver=slurm", "host=login")
    assert added.returncode != 0
    assert words in added.stderr, added.stderr
    assert not world.rows("SELECT id FROM jobs WHERE wanted_by = 'eve'")
