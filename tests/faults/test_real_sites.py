"""One server and real batch systems, with all that happens to them: what docs/sites.md promises.

Tasks keep a journal of their own, so a test knows what really ran, whatever covey, Slurm and Grid
Engine believe.
"""

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.core.record.model import Need
from covey.pilot.protocol.messages import LOST
from covey.store.sqlite.rows import OUTCOME_CODES
from tests.faults.world import World, kill_process, task_script, wait_until
from tests.testbed.fixtures import Firewalled, TwoSlurms
from tests.testbed.gridengine import GridEngine
from tests.testbed.slurm import Slurm
from tests.testbed.ssh import SshHosts

NAP = task_script("sleep 0.3")


class Sites:
    """The server's covey.toml, site by site."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._parts: list[str] = ["[local]\npilots = 0\n"]

    def local(self, slots: int) -> None:
        self._parts[0] = f"[local]\npilots = 1\nslots = {slots}\n"

    def serve(self, **keys: object) -> None:
        self._parts.append("[serve]\n" + _lines(keys))

    def add(
        self,
        name: str,
        driver: str,
        environment: dict[str, str] | None = None,
        options: dict[str, object] | None = None,
        **keys: object,
    ) -> None:
        place = str(self._world.root / f"site-{name}")
        keys = {"directory": place, "interval": "1s", "wall": "10m", "idle": "2s", **keys}
        text = f"[sites.{name}]\ndriver = {_quoted(driver)}\n{_lines(keys)}"
        if options:
            text += f"[sites.{name}.options]\n{_lines(options)}"
        if environment:
            text += f"[sites.{name}.environment]\n{_lines(environment)}"
        self._parts.append(text)

    def write(self) -> None:
        (self._world.root / "covey.toml").write_text("\n".join(self._parts))


def _lines(keys: dict[str, Any]) -> str:
    return "".join(f"{key} = {_quoted(value)}\n" for key, value in keys.items())


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_quoted, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.fixture
def sites(world: World) -> Sites:
    return Sites(world)


def by_site(world: World, bag: int) -> Counter[str]:
    """Whose pilots did how many of the bag's tasks."""
    return Counter(
        dict(
            world.rows(
                "SELECT p.site, count(*) FROM ends e JOIN pilots p ON p.id = e.pilot "
                "WHERE e.bag = ? AND e.counted = 1 GROUP BY p.site",
                bag,
            )
        )
    )


def jobs(world: World, what: str = "count(*)", where: str = "1") -> Any:
    return world.rows(f"SELECT {what} FROM jobs WHERE {where}")[0][0]


def notes(world: World, what: str) -> list[str]:
    return [str(one.get("detail", "")) for one in world.log_notes() if one["what"] == what]


def test_one_bag_over_two_slurms_grid_engine_ssh_and_this_machine(
    world: World, sites: Sites, two_slurms: TwoSlurms, gridengine: GridEngine, sshd: SshHosts
) -> None:
    sites.local(1)
    sites.serve(ssh=f"ssh -F {sshd.config}")
    sites.add("alpha", "slurm", two_slurms.alpha.environment, slots=2, running=2)
    sites.add("beta", "slurm", two_slurms.beta.environment, slots=2, running=2)
    sites.add("grid", "gridengine", gridengine.environment, slots=2, running=2)
    sites.add("hosts", "ssh", options={"hosts": ["login:2"]}, slots=2)
    sites.write()
    world.serve()
    bag = world.submit(task_script("sleep 1"), 100)
    world.wait_over(bag, 120)
    world.check_results(bag, 100)
    world.check_once(bag, 100)
    assert set(by_site(world, bag)) == {"alpha", "beta", "grid", "hosts", "local"}
    # Nothing is left in any queue when there is nothing to do.
    wait_until(lambda: not two_slurms.alpha.squeue() and not two_slurms.beta.squeue(), 60)
    wait_until(lambda: not gridengine.qstat(), 60)


def test_preempted_and_timed_out_pilots_cost_no_task_anything(
    world: World, sites: Sites, slurm: Slurm
) -> None:
    """One pilot's place is taken away, and another gets less time than it was promised. Tasks have
    no retries here: one failure of their own would be the end of them."""
    for name, partition in (("taken", "killable"), ("late", "main")):
        options: dict[str, object] = {"partition": partition}
        sites.add(name, "slurm", slurm.environment, options, slots=4, running=1)
    sites.write()
    world.serve()
    quick = world.root / "quick"
    deaf = 'test $((COVEY_TASK % 2)) = 0 || trap "" TERM'  # the others end at the first signal
    bag = world.submit(task_script(f"test -e {quick} || {{ {deaf}; exec sleep 100; }}"), 16)
    wait_until(lambda: world.running() == 8, 60, world.log_tail)
    quick.touch()  # from now on
    job = dict(world.rows("SELECT site, handle FROM jobs"))
    slurm.end_soon(job["late"])
    urgent = slurm.submit("sleep 1", "--partition=urgent", "--ntasks=1", "--cpus-per-task=4")
    slurm.wait_state(urgent, "COMPLETED", 60)
    slurm.wait_state(job["late"], "TIMEOUT", 60)
    world.wait_over(bag)
    world.check_results(bag, 16)
    assert (world.started(), world.ended()) == (24, 16), "those eight were cut, and no others"
    cut = world.rows("SELECT task, outcome, message FROM ends WHERE bag=? AND counted=0", bag)
    assert {outcome for _, outcome, _ in cut} == {OUTCOME_CODES[LOST]}, cut
    assert sorted(task for task, _, _ in cut) == list(range(8))
    # Whoever says first that a pilot is gone, itself or its site: in the end the reason is told.
    told = [world.covey("explain", str(bag), str(task)).stdout for task in range(8)]
    for why in ("PREEMPTED", "TIMEOUT"):
        so = [text for text in told if f"its site job ended: {why}" in text]
        assert len(so) == 4, told
        assert all("does not count" in text for text in so)


def test_pilots_go_home_before_their_time_is_over(
    world: World, sites: Sites, slurm: Slurm, gridengine: GridEngine
) -> None:
    """So no task is cut. Slurm would let them stay a little longer; Grid Engine would kill them to
    the second, without a word."""
    keys: dict[str, Any] = {"slots": 2, "running": 1, "wall": "10s", "idle": "1m"}
    sites.add("alpha", "slurm", slurm.environment, **keys)
    options: dict[str, object] = {"queue": gridengine.queue}
    sites.add("grid", "gridengine", gridengine.environment, options, **keys)
    sites.write()
    world.serve()
    bag = world.submit(task_script("sleep 0.5"), 80, need=Need(limit_seconds=2))
    world.wait_over(bag)
    world.check_results(bag, 80)
    world.check_once(bag, 80)
    ended = "SELECT DISTINCT site, reason FROM jobs WHERE status = 'ended' ORDER BY site"
    wait_until(lambda: len(world.rows(ended)) > 1, 30, world.log_tail)
    assert world.rows(ended) == [("alpha", "COMPLETED"), ("grid", "exit status 0")]
    # By its own clock or the server's, whichever is first; nobody was idle.
    left = {why for (why,) in world.rows("SELECT reason FROM pilots WHERE status = 'left'")}
    assert left <= {"its time is nearly over", "the server shuts its pilots down"}


def test_the_slots_of_a_pilot_of_grid_engine_work_at_the_same_time(
    world: World, sites: Sites, gridengine: GridEngine
) -> None:
    """Each task waits for another: one after the other they would never end."""
    sites.add("grid", "gridengine", gridengine.environment, slots=2, running=1)
    sites.write()
    world.serve()
    here = f"{world.root}/here"
    mate = f"{here}.$((COVEY_TASK ^ 1))"
    meets = f"touch {here}.$COVEY_TASK; until test -e {mate}; do sleep 0.1; done"
    bag = world.submit(task_script(meets), 8)
    world.wait_over(bag)
    world.check_results(bag, 8)
    world.check_once(bag, 8)
    [(handle,)] = world.rows("SELECT handle FROM jobs")
    number = handle.partition(".")[0]
    gridengine.wait(lambda: gridengine.qacct(number))
    [account] = gridengine.qacct(number)
    assert (account["granted_pe"], account["slots"]) == ("smp", "2")


def test_a_requeued_job_is_the_same_job_with_another_pilot(
    world: World, sites: Sites, slurm: Slurm
) -> None:
    options: dict[str, object] = {"requeue": True}
    sites.add("alpha", "slurm", slurm.environment, options, slots=2, running=1, queued=1)
    sites.write()
    world.serve()
    quick = world.root / "quick"
    bag = world.submit(task_script(f"until test -e {quick}; do sleep 0.1; done"), 6)
    wait_until(lambda: world.running() >= 2, 60, world.log_tail)
    (job,) = slurm.squeue()
    slurm.requeue(job.id)
    slurm.wait_state(job.id, "PENDING")  # when it has ended, Slurm says for how long it waits
    slurm.release(job.id)
    # Between the pilot's goodbye and Slurm's list, one more job may have been submitted.
    first = "SELECT count(*) FROM pilots WHERE job = '1-1'"
    wait_until(lambda: world.rows(first)[0][0] >= 2, 60, world.log_tail)
    quick.touch()
    world.wait_over(bag, 120)
    world.check_results(bag, 6)
    assert jobs(world) <= 2


def test_a_suspended_job_is_shown_as_such(world: World, sites: Sites, slurm: Slurm) -> None:
    sites.add("alpha", "slurm", slurm.environment, slots=2, running=1, queued=1)
    sites.write()
    world.serve()
    quick = world.root / "quick"
    bag = world.submit(task_script(f"until test -e {quick}; do sleep 0.1; done"), 2)
    wait_until(lambda: world.running() >= 2, 60, world.log_tail)
    (job,) = slurm.squeue()
    slurm.run("scontrol", "suspend", job.id)
    words = "1 running (1 of them suspended by the site), 0 waiting"
    wait_until(lambda: words in world.covey("site", "show", "alpha").stdout, 60, world.log_tail)
    assert "1 job suspended by the site" in world.covey("site", "list").stdout
    assert words in world.covey("explain", "site", "alpha").stdout
    slurm.run("scontrol", "resume", job.id)
    quick.touch()
    wait_until(lambda: words not in world.covey("site", "show", "alpha").stdout, 60, world.log_tail)
    world.wait_over(bag, 120)


def test_a_controller_that_dies_and_comes_back(world: World, sites: Sites, slurm: Slurm) -> None:
    sites.add("alpha", "slurm", slurm.environment, slots=4, running=2)
    sites.write()
    world.serve()
    bag = world.submit(NAP, 60)
    wait_until(lambda: world.ended() >= 4, 60, world.log_tail)
    slurm.stop_controller()
    second = world.submit(NAP, 60)
    wait_until(lambda: notes(world, "site does not answer"), 90, world.log_tail)
    slurm.restart_controller()
    for one in (bag, second):
        world.wait_over(one, 120)
        world.check_results(one, 60)
        world.check_once(one, 60)
    wait_until(lambda: notes(world, "site answers again"), 60, world.log_tail)


def test_a_drained_partition_holds_up_nobody_else(
    world: World, sites: Sites, two_slurms: TwoSlurms
) -> None:
    two_slurms.alpha.hold()
    sites.add("alpha", "slurm", two_slurms.alpha.environment, slots=2, queued=2)
    sites.add("beta", "slurm", two_slurms.beta.environment, slots=2)
    sites.write()
    world.serve()
    bag = world.submit(NAP, 60)
    world.wait_over(bag)
    world.check_once(bag, 60)
    assert set(by_site(world, bag)) == {"beta"}
    two_slurms.alpha.resume()
    wait_until(lambda: not two_slurms.alpha.squeue(), 60)


def test_a_site_whose_jobs_all_fail_rests_and_gets_few(
    world: World, sites: Sites, two_slurms: TwoSlurms
) -> None:
    sites.add("alpha", "slurm", two_slurms.alpha.environment, slots=2, python="/bin/false")
    sites.add("beta", "slurm", two_slurms.beta.environment, slots=2)
    sites.write()
    world.serve()
    bag = world.submit(NAP, 100)
    world.wait_over(bag)
    world.check_once(bag, 100)
    assert set(by_site(world, bag)) == {"beta"}
    wait_until(lambda: notes(world, "site rests"), 60, world.log_tail)
    assert "FAILED" in notes(world, "site rests")[0]
    assert jobs(world, where="site = 'alpha'") < 12


def test_500_waiting_pilots_are_taken_back_without_harm(
    world: World, sites: Sites, slurm: Slurm
) -> None:
    slurm.hold()
    sites.add("alpha", "slurm", slurm.environment, slots=1, queued=500, running=500, ramp=500)
    sites.write()
    world.serve()
    bag = world.submit("true", 600)
    wait_until(lambda: len(slurm.squeue()) == 500, 90, world.log_tail)
    began = time.monotonic()
    assert world.covey("cancel", str(bag)).returncode == 0

    def gone() -> bool:
        # The controller answers all the while.
        return not slurm.squeue()

    wait_until(gone, 90, world.log_tail)
    assert time.monotonic() - began < 90
    wait_until(lambda: jobs(world, where="status <> 'ended'") == 0, 60, world.log_tail)
    assert jobs(world) == 500
    assert max(int(one.split()[0]) for one in notes(world, "site jobs taken back")) <= 100
    slurm.resume()


def test_a_server_killed_with_200_jobs_outstanding_doubles_and_loses_none(
    world: World, sites: Sites, slurm: Slurm
) -> None:
    slurm.hold()
    sites.add("alpha", "slurm", slurm.environment, slots=1, queued=200, running=200, ramp=200)
    sites.write()
    process = world.serve()
    bag = world.submit(task_script("sleep 0.1"), 240)
    wait_until(lambda: len(slurm.squeue()) >= 100, 90, world.log_tail)  # in the midst of it
    kill_process(process)
    before = {job.name: job.id for job in slurm.squeue()}
    world.serve()
    wait_until(lambda: len(slurm.squeue()) == 200, 90, world.log_tail)
    time.sleep(5)
    after = slurm.squeue()
    assert len(after) == 200
    ids = {job.id for job in after}
    assert set(before.values()) <= ids, "a job that waited was lost"
    assert len(ids) == jobs(world, where="status <> 'ended'") == 200
    slurm.resume()
    world.wait_over(bag, 120)
    world.check_results(bag, 240)
    world.check_once(bag, 240)


def test_a_cluster_behind_a_firewall(world: World, sites: Sites, firewalled: Firewalled) -> None:
    """Its commands go by SSH, its pilots come out by one port."""
    wall = firewalled.wall
    public = f"https://{wall.outside}:{wall.port}"
    shell = f"ssh -F {firewalled.ssh.config}"
    sites.serve(listen=wall.outside, port=wall.port, public=public, ssh=shell)
    sites.add("walled", "slurm", firewalled.slurm.environment, host="login", slots=4)
    sites.write()
    world.serve()
    bag = world.submit(NAP, 60)
    world.wait_over(bag)
    world.check_once(bag, 60)
    assert set(by_site(world, bag)) == {"walled"}


def test_sites_change_while_the_server_runs(world: World, sites: Sites, slurm: Slurm) -> None:
    sites.write()
    world.serve()
    # The bag outlasts what this test does with the site, however slow the machine is.
    last = world.root / "last"
    bag = world.submit(task_script(f"[ -e {last} ] || sleep 0.3"), 400)
    conf = slurm.environment["SLURM_CONF"]
    added = world.covey(
        "site", "add", "later", "driver=slurm", "slots=2", "interval=1s",
        f"directory={world.root / 'site-later'}", f"environment.SLURM_CONF={conf}",
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    wait_until(lambda: world.ended() >= 4, 60, world.log_tail)
    assert world.covey("site", "drain", "later").returncode == 0
    wait_until(lambda: not slurm.squeue(), 60, world.log_tail)
    assert not world.bag(bag).over
    assert world.covey("site", "resume", "later").returncode == 0
    last.touch()
    world.wait_over(bag)
    world.check_results(bag, 400)
    assert world.covey("site", "remove", "later").returncode == 0
    wait_until(lambda: not slurm.squeue(), 60, world.log_tail)


@pytest.fixture(autouse=True)
def tidy_homes(world: World) -> Iterator[None]:
    yield
    for place in Path(world.root).glob("site-*"):
        shutil.rmtree(place, ignore_errors=True)
