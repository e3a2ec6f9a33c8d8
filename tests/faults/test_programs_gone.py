"""Programs with calls that are out, killed without a word."""

import subprocess
import sys

import covey
from covey.core.bags.waiting_programs import ABSENT
from covey.wire import ResultQuery
from tests.faults.world import World, wait_until

PROGRAM = """
import time
import covey
executor = covey.Executor()
calls = [executor.submit(time.sleep, 8) for _ in range(10)]
while not executor.bag:
    time.sleep(0.01)
print(executor.bag, flush=True)
calls[0].result()
"""


def test_the_calls_of_a_program_that_is_gone_do_not_hold_up_others(world: World) -> None:
    world.serve("--pilots", "1", "--slots", "1", env={"COVEY_SERVE_ABSENT_SECONDS": "3"})
    program = world.start(
        [sys.executable, "-c", PROGRAM],
        env={"COVEY_DIR": str(world.directory)},
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    bag = int(program.stdout.readline())
    wait_until(lambda: world.bag(bag).running > 0, 60, world.log_tail)
    program.kill()
    program.wait()
    wait_until(lambda: world.bag(bag).reason == ABSENT, 60, world.log_tail)
    with covey.connect(dir=world.directory) as connection, covey.Executor(connection) as executor:
        assert executor.submit(abs, -1).result(120) == 1
    client = world.client()
    client.results(bag, ResultQuery(by_row=True), 1.0)
    wait_until(lambda: world.bag(bag).status == "running", 60, world.log_tail)
    client.cancel(bag)
    client.close()
