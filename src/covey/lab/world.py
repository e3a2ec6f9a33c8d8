"""One run of a world file, with one variant and one seed. Equal runs have equal results."""

from collections.abc import Callable
from functools import partial

from covey.lab.clock import START, Timeline
from covey.lab.hosts import LabSite
from covey.lab.ledger import Account
from covey.lab.server import LabServer
from covey.lab.worldfile import BagPart, Variant, WorldFile, policy_of

STEPS = 20_000  # between two reports of progress


def run(
    world: WorldFile,
    variant: Variant | None,
    seed: int,
    progress: Callable[[float, int, int], None] | None = None,
) -> list[Account]:
    """The accounts of the bags, in the file's order. `progress` is called with the time, the number
    of tasks done, and the number of all tasks."""
    clock = Timeline()
    server = LabServer(world.server, clock, seed)
    accounts: dict[str, Account] = {}

    def submit(bag: BagPart) -> None:
        accounts[bag.name] = server.submit(bag, policy_of(bag, variant))

    for site in world.sites:
        LabSite(site, server, seed).open()
    waiting = [bag for bag in world.bags if bag.after]
    for bag in world.bags:
        if not bag.after:
            clock.after(bag.at, partial(submit, bag))
    total, steps = sum(bag.tasks for bag in world.bags), 0
    while _goes_on(world, accounts) and clock.time < START + world.limit:
        clock.step()
        steps += 1
        for bag in [bag for bag in waiting if bag.after in accounts]:
            if accounts[bag.after].over_at:
                waiting.remove(bag)
                submit(bag)
        if progress is not None and steps % STEPS == 0:
            done = sum(account.done for account in accounts.values())
            progress(clock.time - START, done, total)
    for bag in world.bags:
        if bag.name not in accounts:
            accounts[bag.name] = Account(bag.name, bag.tasks, clock.time)
        account = accounts[bag.name]
        if not account.over_at:
            account.stopped = account.stopped or "not over within the limit of the file"
            account.over_at = clock.time
    return [accounts[bag.name] for bag in world.bags]


def _goes_on(world: WorldFile, accounts: dict[str, Account]) -> bool:
    if any(account.stopped for account in accounts.values()):
        return False
    if len(accounts) < len(world.bags):
        return True
    return not all(account.over_at for account in accounts.values())
