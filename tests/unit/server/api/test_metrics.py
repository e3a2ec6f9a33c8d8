"""What /metrics says of sites."""

import asyncio

from covey.core.record.events import PilotLeft
from covey.pilot.protocol.messages import Leave
from covey.server.api.metrics import renderer
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import spec
from tests.unit.server.deciders import decider_of


def test_a_site_whose_check_fails_is_seen() -> None:
    grounds = Grounds(site(ramp=2))
    grounds.submit(spec(4))
    first = grounds.jobs[0]
    grounds.now += 1
    hand = grounds.begin(first, want=0)
    grounds.handle(PilotLeft(grounds.request(), Leave(hand.pilot, 1, "the check failed")))

    async def render() -> bytes:
        return await renderer(decider_of(grounds.scheduler), lambda: 0, lambda: 0)()

    text = asyncio.run(render()).decode()
    assert 'covey_site_failures{site="lake"} 1.0' in text
    assert 'covey_site_jobs{site="lake",state="waiting"} 1.0' in text
    rests = next(line for line in text.splitlines() if line.startswith("covey_site_rests_until_"))
    assert float(rests.split()[-1]) > grounds.now


def test_what_is_known_of_a_site_is_there_and_nothing_else() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1))
    grounds.now += 40
    grounds.runs(*grounds.jobs)

    async def render() -> bytes:
        return await renderer(decider_of(grounds.scheduler), lambda: 0, lambda: 0)()

    text = asyncio.run(render()).decode()
    assert 'covey_site_wait_median_seconds{site="lake"} 40.0' in text
    assert "covey_site_free_cores{" not in text, "its batch system has said nothing"
