"""One run of a world file, with one variant and one seed. Equal runs have equal results."""

from collections.abc import Callable
from functools import partial

from covey.lab.clock import START, Timeline
from covey.lab.ledger import Account
from covey.lab.server import LabServer
from covey.lab.sites import queue_site, site_queues
from covey.lab.sites.hosts import LabSite
from covey.lab.world_parts import BagPart, Variant, WorldFile
from covey.lab.worldfile import policy_of

STEPS = 20_000  # between two reports of progress


def run(
    world: WorldFile,
    variant: Variant | None,
    seed: int,
    progress: Callable[[float, int, int], None] | None = None,
) -> list[Account]:
    """The accounts of the bags, in the file's order. `progress` is called with the time, the number
    of tasks done, and the number of all tasks."""
    clock = Timeline(START - site_queues.warm_seconds(world))
    server = _server_with_sites(world, clock, seed)
    accounts: dict[str, Account] = {}

    def submit(bag: BagPart) -> None:
        broker = (variant.broker if variant is not None else "") or bag.broker
        accounts[bag.name] = server.submit(bag, policy_of(bag, variant), broker)

    def over(name: str) -> None:
        for bag in world.bags:
            if bag.after == name:
                clock.after(0.0, partial(submit, bag))

    server.when_over = over
    for bag in world.bags:
        if not bag.after:
            clock.after(bag.at, partial(submit, bag))
    total, end, steps = sum(bag.tasks for bag in world.bags), START + world.limit, 0
    while server.unfinished and clock.time < end:
        clock.step()
        steps += 1
        if progress is not None and steps % STEPS == 0:
            done = sum(account.done for account in accounts.values())
            progress(clock.time - START, done, total)
    for bag in world.bags:
        if bag.name not in accounts:
            accounts[bag.name] = Account(bag.name, bag.tasks, clock.time)
        account = accounts[bag.name]
        account.census = server.census
        if not account.over_at:
            account.stopped = account.stopped or "not over within the limit of the file"
            account.over_at = clock.time
    return [accounts[bag.name] for bag in world.bags]


def _server_with_sites(world: WorldFile, clock: Timeline, seed: int) -> LabServer:
    """At the world's begin. Until then only other people's jobs are in the queues."""
    queued = {site.name: site for site in world.sites if site.queue is not None}
    queues = {name: site_queues.make(site, clock, seed) for name, site in queued.items()}
    clock.run_to(START)
    specs = tuple(map(queue_site.spec_of, queued.values()))
    server = LabServer(world, clock, seed, specs)
    for site in world.sites:
        if site.name in queued:
            place = queue_site.LabQueueSite(site, server, queues[site.name], seed)
            server.places[site.name] = place
        else:
            LabSite(site, server, seed).open()
    return server
