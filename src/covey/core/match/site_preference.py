"""What a site's owners prefer: whose bags go first on their machines.

A site's `preference` is an expression over `Bag`, `User`, `Site` and `Queue`. The higher its value
for a bag, the earlier the bag's turn on every pilot of the site, and when pilots are started there;
ranks and age count less. True counts as 1, a value that is not a number as 0. A preference keeps no
bag away; a site's `users` do that.

The values are computed again when a bag comes or goes, and after `LOOK_SECONDS`.
"""

from collections.abc import Callable, Mapping

from covey.classad import Ad, Policy
from covey.core.match.attributes import TABLE, full_ad
from covey.core.match.match_cache import as_number
from covey.core.match.policies import ROLES, looks_of, parsed
from covey.core.record.model import BagId, SiteSpec
from covey.core.state import Bag, State
from covey.core.state.match_records import Preference

NAME = "preference"
LOOK_SECONDS = 5.0
_SEEN = ("site", "user", "queue", "bag")
_NOTHING = Ad()
_ALL_ALIKE: dict[BagId, float] = {}


def worth(state: State, now: float, site: str) -> Mapping[BagId, float]:
    """The value of each bag to the site's owners, the highest for the bag that goes first; 0 for a
    bag that is not in it."""
    known = state.sites.get(site)
    if known is None or not known.record.spec.preference:
        return _ALL_ALIKE
    preference = known.preference
    if preference is None or preference.text != known.record.spec.preference:
        preference = known.preference = _compiled(known.record.spec)
    if _is_old(state, now, preference):
        preference.worth = _looked(state, now, site, preference, state.random.random)
        preference.comings, preference.at = state.changes.comings, now
    return preference.worth


def _is_old(state: State, now: float, preference: Preference) -> bool:
    return preference.comings != state.changes.comings or now - preference.at >= LOOK_SECONDS


def _compiled(spec: SiteSpec) -> Preference:
    ad = Ad({NAME: parsed(NAME, spec.preference)})
    looks = {role: frozenset(names) for role, names in looks_of(ad, (NAME,)).items()}
    return Preference(spec.preference, Policy(ad, (NAME,), ROLES), looks)


def _looked(
    state: State, now: float, site: str, preference: Preference, random: Callable[[], float]
) -> dict[BagId, float]:
    def ad(role: str, thing: object) -> Ad:
        names = preference.looks.get(role)
        return full_ad(state, now, role, thing, names=names) if names else _NOTHING

    preference.policy.context.now, preference.policy.context.random = now, random
    place, queue = ad("site", site), ad("queue", None)
    users: dict[str, Ad] = {}
    worths = {}
    for bag in state.bags.values():
        owner = bag.spec.owner
        if owner not in users:
            users[owner] = ad("user", owner)
        own = ad("bag", bag)
        for name, value in own.table.items():  # names without a prefix mean the bag, as in policies
            preference.policy.own[name] = value
        around = (_NOTHING, _NOTHING, place, _NOTHING, users[owner], queue, own, own)
        [value] = preference.policy.evaluate(*around)
        worths[bag.id] = as_number(value, 0.0)
    return worths


def worth_now(state: State, now: float, site: str) -> Mapping[BagId, float]:
    """What `worth` would return now. Nothing is kept, so asking changes nothing; chance is one
    half."""
    known = state.sites.get(site)
    if known is None or not known.record.spec.preference:
        return _ALL_ALIKE
    spec, preference = known.record.spec, known.preference
    if preference is None or preference.text != spec.preference:
        return _looked(state, now, site, _compiled(spec), lambda: 0.5)
    if _is_old(state, now, preference):
        return _looked(state, now, site, preference, lambda: 0.5)
    return preference.worth


def ahead(state: State, now: float, site: str, bag: Bag) -> list[BagId]:
    """Bags that have work and are preferred to this one there."""
    worths = worth_now(state, now, site)
    own = worths.get(bag.id, 0.0)
    better = [id_ for id_, value in worths.items() if value > own]
    return [id_ for id_ in better if id_ in state.bags and state.bags[id_].unsent()]


def problem(text: str) -> str:
    """What is wrong with a preference that can be parsed, in words; empty if nothing is."""
    for role, names in looks_of(Ad({NAME: parsed(NAME, text)}), (NAME,)).items():
        if role not in _SEEN:
            return f"it cannot use {role.title()}, only Bag, User, Site and Queue"
        strange = sorted(names - TABLE[role].keys() - {"*"})
        if strange:
            return f"there is no {role.title()}.{strange[0]}: see 'covey policy attributes'"
    return ""
