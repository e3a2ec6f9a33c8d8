"""From what a world file says about a site's queue to a queue that has run for a while."""

from functools import partial
from pathlib import Path
from random import Random

from covey.lab.clock import START, Timeline
from covey.lab.sites import swf
from covey.lab.sites.batch_queue import Background, BatchQueue, DrawnQueue, JobQueue
from covey.lab.world_parts import BackgroundPart, Seconds, SitePart, WorldFile

Steps = tuple[tuple[Seconds, float], ...]


def warm_seconds(world: WorldFile) -> float:
    """How long queues run before the world begins."""
    parts = [site.queue.background for site in world.sites if site.queue is not None]
    return max((part.warm for part in parts if part is not None), default=0.0)


def make(site: SitePart, clock: Timeline, seed: int) -> JobQueue:
    """`clock` is as far before the world's begin as `warm_seconds` says."""
    queue = site.queue
    assert queue is not None
    random = Random(f"{seed}/{site.name}/queue")
    if not queue.cores:
        drawn = DrawnQueue(clock, queue.wait, random)
        for time, factor in queue.load:
            clock.at(START + time, partial(setattr, drawn, "factor", factor))
        return drawn
    batch = BatchQueue(clock, queue.cores)
    if queue.background is not None:
        part, people = queue.background, Background(clock, batch)
        begin = START - part.warm
        if part.trace:
            jobs = swf.read(Path(part.trace))
            offset = START - part.begin
            people.replay([job for job in jobs if offset + job.submitted >= begin], offset)
        else:
            draw = partial(_draw, people, part, clock, random)
            clock.at(begin, draw)
    return batch


def _draw(people: Background, part: BackgroundPart, clock: Timeline, random: Random) -> None:
    rate = partial(_factor, part.load, clock)
    people.draw(part.every, part.time, part.cores, part.asked, rate, random)


def _factor(steps: Steps, clock: Timeline) -> float:
    """That of the last step that has begun."""
    found = 1.0
    for time, factor in steps:
        if START + time <= clock.time:
            found = factor
    return found
