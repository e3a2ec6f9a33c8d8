"""Two people on one real server, whose machine has one slot: each task runs in a pilot of its
owner."""

from covey.client.client import Client
from covey.core.record.model import BagSpec
from covey.core.values.space import Axis, Range
from covey.whoami import user
from covey.wire import ResultQuery
from tests.faults.world import World, open_world, wait_until


def client_of(world: World, owner: str) -> Client:
    made = world.covey("token", "create", f"for {owner}", "--owner", owner)
    assert made.returncode == 0, made.stderr
    return Client(world.client().connection.endpoint.address, made.stdout.strip())


def pilots_of(client: Client, bag: int, total: int) -> set[int]:
    """Who ran its tasks, when all are done."""

    def all_done() -> bool:
        return len(client.results(bag, ResultQuery(limit=total + 1))) == total

    wait_until(all_done, 60, lambda: f"{client.bag(bag)}")
    return {row.pilot for row in client.results(bag, ResultQuery(limit=total + 1))}


def test_a_pilot_of_this_machine_is_one_owners_and_makes_place_for_another() -> None:
    """No token is issued: whoever says that they are ann and bob can read all secrets anyway."""
    with open_world() as world:
        world.serve("--slots", "1", "--pilots", "1")
        client = world.client()
        ran: dict[str, set[int]] = {}
        for owner in ("ann", "bob"):
            ran[owner] = pilots_of(client, world.submit("true", 5, owner=owner), 5)
        owners = {one.id: one.owner for one in client.pilots(everyone=True)}
        for owner, ids in ran.items():
            assert {owners[id_] for id_ in ids} == {owner}


def test_nobody_elses_task_runs_where_the_servers_secrets_are() -> None:
    """Ann has a token, and wants the server's own. Pilots of its machine run as its user."""
    with open_world() as world:
        world.serve("--slots", "1", "--pilots", "1")
        mine = world.submit("true", 1)
        world.wait_over(mine)
        client = client_of(world, "ann")
        stolen = world.root / "stolen"
        script = f"cat {world.directory}/secrets.json {world.directory}/server.json > {stolen}"
        space = Axis("i", Range("0", "1", 1))
        anns = client.submit(BagSpec(argv=("sh", "-c", script), space=space)).bag
        world.wait_over(world.submit("true", 3))
        assert not client.results(anns, ResultQuery(limit=1))
        assert not stolen.exists()
        told = world.covey("explain", str(anns)).stdout
        assert f"its pilots run as {user()}" in told, told
        assert "local.shared" in told


def test_a_trial_of_the_servers_own_admin_is_not_for_everybody() -> None:
    with open_world() as world:
        world.serve("--slots", "1", "--pilots", "1")
        tried = world.covey("site", "test", "local")
        assert tried.returncode == 0, tried.stderr
        [pilot] = world.client().pilots(everyone=True)
        assert pilot.owner == user()
