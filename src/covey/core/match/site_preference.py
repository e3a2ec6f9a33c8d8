"""What a site's owners prefer: whose bags go first on their machines.

A site's `preference` is an expression over `Bag`, `User`, `Site` and `Queue`. The higher its value
for a bag, the earlier the bag's turn on every pilot of the site, and when pilots are asked for
there: before ranks and age. True is 1, and what is no number is 0. It keeps nobody out; that is
what a site's `users` are for.

All bags are looked at again when one comes or goes, and after `LOOK_SECONDS`.
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
    """Of each bag there, the most wanted has the most; a bag that is not in it has 0."""
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
    state: State, now: float, site: str, one: Preference, random: Callable[[], float]
) -> dict[BagId, float]:
    def ad(role: str, thing: object) -> Ad:
        names = one.looks.get(role)
        return full_ad(state, now, role, thing, names=names) if names else _NOTHING

    one.policy.context.now, one.policy.context.random = now, random
    place, queue = ad("site", site), ad("queue", None)
    users: dict[str, Ad] = {}
    found = {}
    for bag in state.bags.values():
        owner = bag.spec.owner
        if owner not in users:
            users[owner] = ad("user", owner)
        own = ad("bag", bag)
        for name, value in own.table.items():  # without a prefix they mean the bag, as in policies
            one.policy.own[name] = value
        around = (_NOTHING, _NOTHING, place, _NOTHING, users[owner], queue, own, own)
        [value] = one.policy.evaluate(*around)
        found[bag.id] = as_number(value, 0.0)
    return found


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
    """What is wrong with a preference that can be read, in words; nothing if all is well."""
    for role, names in looks_of(Ad({NAME: parsed(NAME, text)}), (NAME,)).items():
        if role not in _SEEN:
            return f"it cannot use {role.title()}, only Bag, User, Site and Queue"
        strange = sorted(names - TABLE[role].keys() - {"*"})
        if strange:
            return f"there is no {role.title()}.{strange[0]}: see 'covey policy attributes'"
    return ""
