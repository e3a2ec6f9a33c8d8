"""Which sites may have pilots for which bags.

A site is out where its users or the bag's policy say so: `GridPolicy`, or requirements that are
false whatever host it would be. What depends on a host is not known before there is a pilot; then
it counts as yes.
"""

from covey.classad import Ad
from covey.core import matching
from covey.core.demand import Row, Shape
from covey.core.fitting import weight
from covey.core.model import SiteSpec
from covey.core.state import Bag, Site, State

_NOTHING = Ad()


def allowed(state: State, now: float, rows: list[Row]) -> dict[tuple[int, str], bool]:
    """By bag and site."""
    matching.set_scene(state, now)
    found: dict[tuple[int, str], bool] = {}
    for bag in {row.bag.id: row.bag for row in rows}.values():
        for name, site in state.sites.items():
            found[bag.id, name] = _lets(state, now, bag, site)
    return found


def fits(row: Row, spec: SiteSpec) -> int:
    """How many slots of a pilot there a task takes; 0 if it cannot run there."""
    life = spec.wall_seconds or float("inf")
    if life < row.life:
        return 0
    shape = Shape(spec.name, spec.slots, spec.memory_mb, spec.disk_mb, spec.gpus, "", life)
    return weight(row.need, shape)


def _lets(state: State, now: float, bag: Bag, site: Site) -> bool:
    spec = site.record.spec
    if spec.users and bag.spec.owner not in spec.users:
        return False
    rescues = bool(bag.rescue) and spec.name in bag.policy.spec.failover_sites
    if rescues:
        return True
    if spec.failover:
        return False
    return bag.policy.plain or not _refuses(state, now, bag, spec.name)


def _refuses(state: State, now: float, bag: Bag, site: str) -> bool:
    """Whether its requirements are false there, for all of its classes."""
    place = bag.policy.places[0]
    if place is None:
        return False
    if len(bag.jobs) != len(bag.needs) or matching.stale(state, bag):
        matching.refresh(state, now, bag)
    scene, own = state.scene, bag.policy.ad
    ad, user = matching.site_ad(state, now, site), matching.user_ad(state, now, bag.spec.owner)
    evaluate = bag.policy.dispatch.evaluate
    return all(
        evaluate(_NOTHING, _NOTHING, ad, job, user, scene.queue, own, own)[place] is False
        for job in bag.jobs
    )
