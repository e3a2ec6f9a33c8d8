"""What policies would see at this moment, for somebody who asks without changing anything.

`match_cache` brings ads up to date when dispatch needs them, and looks at some things only once a
second. The functions here return the values that dispatch would still use now. A value that is
missing in the answer is one that dispatch would look at anew.
"""

from collections.abc import Mapping

from covey.core.match import attributes, match_cache
from covey.core.match.attributes import TABLE
from covey.core.state import Bag, Pilot, State

Values = Mapping[str, object]  # by the attribute's name, in small letters
_ALL_ANEW: Values = {}


def of_scene(state: State, now: float, role: str, name: str) -> Values:
    """Of the queue, or of the site or user of this name."""
    scene = state.scene
    if match_cache.is_scene_old(state, now):
        return _ALL_ANEW
    if role == "queue":
        return scene.queue.table
    ad = (scene.sites if role == "site" else scene.users).get(name)
    return _ALL_ANEW if ad is None else ad.table


def of_host(state: State, now: float, pilot: Pilot, owner: str) -> Values:
    """Of the pilot's host: its statistics. All else is looked at anew, or has not changed."""
    face = pilot.faces.get(owner)
    if face is None or face.policies != state.changes.policies:
        return _ALL_ANEW
    failures = attributes.host_of(state, pilot).history.row
    if match_cache.is_face_old(face, pilot.record, failures, now):
        return _ALL_ANEW
    names = (name for _, name in state.scene.statistics)
    return {name: face.host.table[name] for name in names if name in face.host.table}


def of_bag(state: State, now: float, bag: Bag) -> Values:
    """Of the bag itself, its `Tail` among them."""
    return _ALL_ANEW if would_refresh(state, now, bag) else bag.policy.ad.table


def would_refresh(state: State, now: float, bag: Bag) -> bool:
    """Whether dispatch would bring the bag's ads up to date first."""
    if len(bag.cache.jobs) != len(bag.classes) or match_cache.stale(state, now, bag):
        return True
    return match_cache.is_scene_old(state, now) and _scene_changes(state, now)


def _scene_changes(state: State, now: float) -> bool:
    """Whether something has changed since the queue, sites and users were last looked at."""
    scene = state.scene
    if scene.policies != state.changes.policies:
        return True
    roles = (("queue", {"": scene.queue}), ("site", scene.sites), ("user", scene.users))
    return any(
        ad.table.get(name, ad) != TABLE[role][name].find(state, now, thing)
        for role, ads in roles
        for thing, ad in ads.items()
        for name in scene.looks.get(role, ())
        if name in TABLE[role]
    )
