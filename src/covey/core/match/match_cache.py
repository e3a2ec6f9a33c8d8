"""What policies say of a pilot: which classes of which bags may run there, and how they rank.

Ads hold only the attributes that some policy looks at. They are brought up to date in place, and
their stamp grows when one changes. The answer of a policy about a pilot is kept until something
changes that the policy looks at. So when a pilot asks among a thousand bags, only policies are
evaluated that may answer otherwise than when it last asked. Sites, users, the queue and the
statistics of hosts are looked at once a second; the statistics of a host also when a task fails
there.
"""

import sys
from collections.abc import Callable

from msgspec.structs import replace

from covey.classad import Ad
from covey.classad.fast import METER
from covey.classad.values import UNDEFINED
from covey.core.match import attributes, policy_budget
from covey.core.match.attributes import STATISTICS, TABLE, JobSubject
from covey.core.match.policies import FACE, Compiled, Places
from covey.core.record.model import PilotRecord
from covey.core.state import Bag, Budget, Pilot, State
from covey.core.state.match_records import ANYWHERE, ClassMatch, Match, MatchAnswer, PilotFace
from covey.core.values.scalars import read

MOST_CONCURRENCY = 1_000_000
EVALUATING = "its policy cannot be evaluated"
REFRESH_SECONDS = 1.0
REFRESH = 5  # units of work (`policy_budget`) to bring the ad of a class up to date
REPLICA = 100  # units of work to make the ads of a running task and of the hosts where it runs
_LARGEST = sys.float_info.max
_NUMBERS = (float, int, bool)
_NOTHING = Ad()
_NOT_ASKED: list[Match | None] = [None]
_LATER = MatchAnswer(-1, -1, -1, _NOT_ASKED)  # no class of the bag was asked yet
_STATISTICS = frozenset(one.name.lower() for one in STATISTICS)


def matches(
    state: State, now: float, pilot: Pilot, bag: Bag, face: PilotFace
) -> list[Match | None]:
    """For each class of the bag: the policy's answer, or None if the class may not run there.
    `face` must be up to date (`face_of`)."""
    kind = shared_policy(state, bag)
    if kind is None:
        return own_answer(state, now, pilot, bag, face).matches
    if kind in face.said and face.said_at == (face.stamp, state.scene.stamp):
        return face.said[kind]
    scene, owner = state.scene, bag.spec.owner
    site, user = scene.sites[pilot.record.site], scene.users[owner]
    left = policy_budget.of(state, now, owner)
    if left.in_turn <= 0:
        policy_budget.put_off(state, owner, left)
        return face.said.get(kind, _NOT_ASKED)
    match = _ask(state, face, kind, site, user, owner)
    policy_budget.spend(left, _cost(kind))
    return [match]


def own_answer(state: State, now: float, pilot: Pilot, bag: Bag, face: PilotFace) -> MatchAnswer:
    """The same for a bag whose policy shares its answer with no other bag. If the owner's budget
    does not suffice for all classes, the others keep their earlier answer: None at first. Then the
    answer is not whole, so that the bag is asked about again."""
    policy, owner = bag.policy, bag.spec.owner
    found = _earlier(bag, face)
    unseen = len(bag.cache.jobs) != len(bag.classes) or (policy.inward and stale(state, now, bag))
    if not unseen and found is not None and found.whole() and _is_true(state, bag, face, found):
        found.face = face.stamp
        return found
    left = policy_budget.of(state, now, owner)
    if left.in_turn <= 0:
        policy_budget.put_off(state, owner, left)
        return replace(found, asked=0) if found is not None else _LATER
    if unseen:
        refresh(state, now, bag)
    if found is None:
        found = face.found[bag.id] = MatchAnswer(-1, -1, -1, [])
    if not _is_true(state, bag, face, found):
        found.asked = 0
    found.face, found.scene, found.bag = face.stamp, state.scene.stamp, bag.cache.stamp
    _ask_classes(state, now, pilot, bag, face, found, left)
    return found


def _earlier(bag: Bag, face: PilotFace) -> MatchAnswer | None:
    """What the bag's present policy has answered about this pilot; an earlier policy's answer says
    nothing."""
    found = face.found.get(bag.id)
    return None if found is None or found.bag < bag.cache.renewed else found


def _is_true(state: State, bag: Bag, face: PilotFace, found: MatchAnswer) -> bool:
    """Whether the policy would still give this answer."""
    same = found.bag == bag.cache.stamp and len(found.matches) == len(bag.cache.jobs)
    return same and _holds(state, bag.policy, face, found)


def _ask_classes(
    state: State,
    now: float,
    pilot: Pilot,
    bag: Bag,
    face: PilotFace,
    found: MatchAnswer,
    left: Budget,
) -> None:
    """Ask about the classes that were not asked about yet, as far as the budget goes. If the policy
    looks at nothing of a task, one answer holds for all classes."""
    jobs, answers = bag.cache.jobs, found.matches
    count, first, spent, policy = len(jobs), found.asked, 0, bag.policy
    if len(answers) != count:
        answers[count:] = []
        answers += [None] * (count - len(answers))
    place, METER.used = found.turn if found.turn < count else 0, 0
    try:
        while found.asked < count:
            if spent >= left.in_turn:
                policy_budget.put_off(state, bag.spec.owner, left)
                break
            answers[place] = _match(state, now, pilot, bag, face, jobs[place])
            spent += policy_budget.cost(policy.static)
            if policy.by_class:
                answers[:], found.asked = [answers[place]] * count, count
                break
            found.asked += 1
            place = place + 1 if place + 1 < count else 0
    except Exception as error:
        bag.suspect(EVALUATING, error)
        found.asked, answers[:] = count, [None] * count
    found.turn = place
    if found.asked > first:
        bag.cache.expense = spent if policy.by_class else spent / (found.asked - first) * count
    policy_budget.spend(left, spent)
    found.ranks = list(dict.fromkeys([one.rank for one in answers if one is not None]))


def shared_answers(
    state: State, now: float, pilot: Pilot, face: PilotFace, owner: str
) -> list[list[Match | None] | None]:
    """For each bag of the owner: the answer that it shares with other bags, or None if it shares
    none. A shared policy for which the budget does not suffice keeps its earlier answer, and is
    asked first the next time."""
    scene, before, owing = state.scene, face.said, face.owing
    site, user = scene.sites[pilot.record.site], scene.users[owner]
    face_at, scene_at = face.said_at
    known, moved = face.stamp - face_at <= 1, scene.stamp != scene_at
    changed = face.latest if face.stamp != face_at else ()
    left = policy_budget.of(state, now, owner)
    units, METER.used = left.in_turn, 0
    said: dict[ClassMatch, list[Match | None]] = {}
    later: dict[ClassMatch, None] = {}
    answers: list[list[Match | None] | None] = []
    for owed in owing:
        if units <= 0:
            break
        said[owed] = [_ask(state, face, owed, site, user, owner)]
        units -= _cost(owed)
    for kind in scene.asked.get(owner, ()):
        if kind is None:
            answers.append(None)
            continue
        matches = said.get(kind)
        if matches is None:
            matches = before.get(kind) if known else None
            if (
                matches is None
                or (moved and kind.outward)
                or not kind.sees.isdisjoint(changed)
                or (owing and kind in owing)
            ):
                if units > 0:
                    matches = [_ask(state, face, kind, site, user, owner)]
                    units -= _cost(kind) if METER.used else kind.static
                else:
                    matches, later[kind] = before.get(kind, _NOT_ASKED), None
            said[kind] = matches
        answers.append(matches)
    policy_budget.spend(left, left.in_turn - units)
    if later:
        policy_budget.put_off(state, owner, left)
    face.said, face.said_at, face.owing = said, (face.stamp, scene.stamp), later
    return answers


def _ask(
    state: State, face: PilotFace, kind: ClassMatch, site: Ad, user: Ad, owner: str
) -> Match | None:
    queue, none = state.scene.queue, _NOTHING
    try:
        values = kind.evaluate(face.host, face.pilot, site, none, user, queue, none, none)
        return judged(kind.places, values)
    except Exception as error:
        for bag in state.scene.owners.get(owner, ()):
            if shared_policy(state, bag) is kind:
                bag.suspect(EVALUATING, error)
        return None


def _cost(kind: ClassMatch) -> int:
    """The cost of the evaluation that was just made."""
    kind.cost = policy_budget.cost(kind.static)
    return kind.cost


def shared_policy(state: State, bag: Bag) -> ClassMatch | None:
    """The policy that this bag shares with others that say the same. None if this bag's policy
    cannot share its answer with other bags."""
    policy = bag.policy
    if policy.plain or policy.inward or policy.erratic or len(bag.classes) != 1:
        return None
    kinds = state.scene.kinds
    kind = kinds.get(policy.said)
    if kind is None:
        kind = kinds[policy.said] = ClassMatch(
            policy.dispatch.evaluate,
            policy.places,
            policy.sees,
            policy.outward,
            policy.static,
        )
    return kind


def last_answer(state: State, face: PilotFace, bag: Bag) -> list[Match | None] | None:
    """The policy's answer when the pilot last asked, which may have changed since then. None if it
    was never asked about this pilot."""
    kind = shared_policy(state, bag)
    if kind is not None:
        return face.said.get(kind)
    found = _earlier(bag, face)
    return found.matches if found is not None else None


def stale(state: State, now: float, bag: Bag) -> bool:
    """Whether the bag's ads may be out of date. Attributes that change with time alone are looked
    at once a second."""
    if bag.cache.dirty or bag.cache.scene != state.scene.stamp:
        return True
    return bag.policy.timed and now - bag.cache.at >= REFRESH_SECONDS


def _holds(state: State, policy: Compiled, face: PilotFace, found: MatchAnswer) -> bool:
    if policy.erratic or (policy.outward and found.scene != state.scene.stamp):
        return False
    if found.face >= face.stamp - 1:
        return found.face == face.stamp or policy.sees.isdisjoint(face.latest)
    return all(face.changed.get(name, 0) <= found.face for name in policy.sees)


def _match(
    state: State, now: float, pilot: Pilot, bag: Bag, face: PilotFace, job: Ad
) -> Match | None:
    compiled, scene = bag.policy, state.scene
    policy, own = compiled.dispatch, compiled.ad
    if compiled.erratic:
        policy.context.now, policy.context.random = now, state.random.random
    site, user = scene.sites[pilot.record.site], scene.users[bag.spec.owner]
    values = policy.evaluate(face.host, face.pilot, site, job, user, scene.queue, own, own)
    return judged(compiled.places, values)


def judged(places: Places, values: tuple[object, ...]) -> Match | None:
    """Only JobRequirements that are true let tasks run. A Rank that is not a number counts as 0.0.
    A Concurrency or a Deadline that is not a number sets no limit."""
    requirements, rank, concurrency, deadline = places
    if requirements is not None and values[requirements] is not True:
        return None
    worth = 0.0 if rank is None else as_number(values[rank], 0.0)
    limit = None
    if concurrency is not None and (said := as_number(values[concurrency], -1.0)) >= 0:
        limit = int(said) if said < MOST_CONCURRENCY else MOST_CONCURRENCY
    if deadline is None:
        return Match(worth, limit)
    return Match(worth, limit, max(0.0, as_number(values[deadline], 0.0)))


def as_number(value: object, otherwise: float) -> float:
    if value.__class__ is float and -_LARGEST <= value <= _LARGEST:
        return value
    if value.__class__ in _NUMBERS and -_LARGEST <= value <= _LARGEST:
        return float(value)
    return otherwise


def match_task(
    state: State, now: float, pilot: Pilot, bag: Bag, face: PilotFace, task: int
) -> Match | None:
    """The policy's answer about one task that runs already; it sees the task's replicas."""
    if bag.policy.plain:
        return ANYWHERE
    if bag.cache.dirty and bag.policy.inward:
        refresh(state, now, bag)
    try:
        job = job_ad(state, now, bag, task, bag.policy.at_dispatch)
        return _match(state, now, pilot, bag, face, job)
    except Exception as error:
        bag.suspect(EVALUATING, error)
        return None


def wants_replica(state: State, now: float, bag: Bag, task: int) -> bool:
    """Whether the policy wants another attempt of this running task. The only hosts that the policy
    sees are those where the task runs, in `Job.Replicas`."""
    compiled = bag.policy
    policy = compiled.replication
    policy.context.now = now
    policy.context.random = state.random.random
    scene, own, none = state.scene, compiled.ad, _NOTHING
    user = scene.users[bag.spec.owner]
    try:
        job = job_ad(state, now, bag, task, compiled.looks)
        values = policy.evaluate(none, none, none, job, user, scene.queue, own, own)
        left = policy_budget.of(state, now, bag.spec.owner)
        policy_budget.spend(left, REPLICA + policy_budget.cost(compiled.static))
    except Exception as error:
        bag.suspect(EVALUATING, error)
        return False
    return values[0] is True and len(bag.places.live.get(task, ())) < _at_least_one(values[1])


def most_replicas(state: State, now: float, bag: Bag, task: int) -> int:
    """How many attempts of this running task may run at the same time."""
    compiled = bag.policy
    if compiled.most_replicas is not None:
        late = compiled.most_late or 0
        if late > compiled.most_replicas and all(one.expired for one in bag.places.live[task]):
            return late
        return compiled.most_replicas
    if stale(state, now, bag):
        refresh(state, now, bag)
    policy = compiled.replication
    policy.context.now, policy.context.random = now, state.random.random
    scene, own, none = state.scene, compiled.ad, _NOTHING
    user = user_ad(state, now, bag.spec.owner)
    try:
        job = job_ad(state, now, bag, task, compiled.looks)
        values = policy.evaluate(none, none, none, job, user, scene.queue, own, own)
        left = policy_budget.of(state, now, bag.spec.owner)
        policy_budget.spend(left, REPLICA + policy_budget.cost(compiled.static))
    except Exception as error:
        bag.suspect(EVALUATING, error)
        return 1
    return _at_least_one(values[1])


def _at_least_one(value: object) -> int:
    """The value of MaxReplicas as a number of attempts."""
    return int(max(1.0, as_number(value, 2.0)))


def is_in_tail(bag: Bag, policy: Compiled, holds: Callable[[], bool]) -> bool:
    """Whether the bag is in its tail from now on. `holds`: whether TailCondition is true."""
    stays = bag.replicas.tail and policy.sticky
    return stays or (not bag.open and holds())


def in_tail(state: State, now: float, bag: Bag) -> bool:
    """Whether TailCondition is true."""
    compiled = bag.policy
    compiled.tail.context.now = now
    scene, own, none = state.scene, compiled.ad, _NOTHING
    user = scene.users[bag.spec.owner]
    [value] = compiled.tail.evaluate(none, none, none, none, user, scene.queue, own, own)
    return value is True


# -- ads -----------------------------------------------------------------------------------


def face_of(state: State, now: float, pilot: Pilot, owner: str) -> PilotFace:
    """What policies of this owner's bags see of the pilot, brought up to date."""
    set_scene(state, now)
    scene, record = state.scene, pilot.record
    face = pilot.faces.get(owner)
    if face is None:
        face = pilot.faces[owner] = PilotFace(Ad(), Ad())
    if record.site not in scene.sites or owner not in scene.users:
        _place(state, now, record.site, owner)
    failures = attributes.host_of(state, pilot).history.row
    anew = face.record is not record or face.policies != scene.policies
    names = scene.live
    if anew or is_face_old(face, record, failures, now):
        face.at, face.failures = now, failures
        names += scene.statistics
    if anew:
        face.own, face.others = attributes.tags_of(record.tags, owner)
        face.record, face.policies = record, scene.policies
        names += scene.lasting
    if names:
        _look(state, now, pilot, face, names)
    return face


def is_face_old(face: PilotFace, record: PilotRecord, failures: int, now: float) -> bool:
    """Whether the statistics of the host are to be looked at again. `failures`: in a row there."""
    old = failures != face.failures or now - face.at >= REFRESH_SECONDS
    return old or face.record is not record


def _look(
    state: State,
    now: float,
    pilot: Pilot,
    face: PilotFace,
    names: tuple[tuple[str, str], ...],
) -> None:
    stamp = face.stamp + 1
    latest: list[str] = []
    for role, name in names:
        ad = face.host if role == "host" else face.pilot
        known = TABLE[role].get(name)
        value: object = UNDEFINED
        if known is not None and (role != "host" or name not in face.own):
            value = known.find(state, now, pilot)
        elif role == "host":
            value = face.own.get(name, face.others.get(name, UNDEFINED))
        before = ad.table.get(name, ad)
        if before != value or before.__class__ is not value.__class__:
            ad[name] = value
            latest += (f"{role}.{name}", f"{role}.*")
    if latest:
        face.stamp, face.latest = stamp, latest
        face.changed.update(dict.fromkeys(latest, stamp))


def set_scene(state: State, now: float) -> None:
    scene = state.scene
    if not is_scene_old(state, now):
        return
    if scene.policies != state.changes.policies:
        _look_anew(state)
    scene.at = now
    changed = _update(state, now, "queue", scene.queue, None)
    for name, ad in scene.sites.items():
        changed |= _update(state, now, "site", ad, name)
    for name, ad in scene.users.items():
        changed |= _update(state, now, "user", ad, name)
    if changed:
        scene.stamp += 1


def is_scene_old(state: State, now: float) -> bool:
    """Whether the queue, the sites and the users are to be looked at again."""
    scene = state.scene
    return scene.policies != state.changes.policies or now - scene.at >= REFRESH_SECONDS


def _look_anew(state: State) -> None:
    """Find out at which attributes all policies look, after one has come, gone or changed."""
    looks: dict[str, set[str]] = {}
    for bag in state.bags.values():
        for role, names in bag.policy.looks.items():
            looks.setdefault(role, set()).update(names)
    scene = state.scene
    scene.policies = state.changes.policies
    scene.asking = any(not bag.policy.plain for bag in state.bags.values())
    scene.ranking = any("Rank" in bag.policy.texts for bag in state.bags.values())
    scene.limiting = any(bag.policy.limiting for bag in state.bags.values())
    scene.looks = {
        role: tuple(sorted(names | TABLE.get(role, {}).keys() if "*" in names else names))
        for role, names in looks.items()
    }
    seen = [(role, name) for role in FACE for name in scene.looks.get(role, ())]
    scene.live = tuple(one for one in seen if one[0] == "pilot" or one[1] == "runningjobs")
    scene.statistics = tuple(one for one in seen if one[0] == "host" and one[1] in _STATISTICS)
    scene.lasting = tuple(one for one in seen if one not in scene.live + scene.statistics)
    scene.users = {name: ad for name, ad in scene.users.items() if _has_bags(state, name)}
    scene.stamp += 1


def _has_bags(state: State, owner: str) -> bool:
    return any(bag.spec.owner == owner for bag in state.bags.values())


def site_ad(state: State, now: float, name: str) -> Ad:
    if name not in state.scene.sites:
        _place(state, now, name, "")
    return state.scene.sites[name]


def user_ad(state: State, now: float, owner: str) -> Ad:
    if owner not in state.scene.users:
        _place(state, now, "", owner)
    return state.scene.users[owner]


def _place(state: State, now: float, site: str, owner: str) -> None:
    scene = state.scene
    if site not in scene.sites:
        scene.sites[site] = Ad()
        _update(state, now, "site", scene.sites[site], site)
    if owner not in scene.users:
        scene.users[owner] = Ad()
        _update(state, now, "user", scene.users[owner], owner)


def _update(state: State, now: float, role: str, ad: Ad, thing: object) -> bool:
    table, held, changed = TABLE[role], ad.table, False
    for name in state.scene.looks.get(role, ()):
        if name in table:
            value = table[name].find(state, now, thing)
            if held.get(name, ad) != value:
                ad[name] = value
                changed = True
    return changed


def refresh(state: State, now: float, bag: Bag) -> None:
    """Bring the ad of the bag, and those of its classes, up to date."""
    scene = state.scene
    set_scene(state, now)
    if bag.spec.owner not in scene.users:
        _place(state, now, "", bag.spec.owner)
    left = policy_budget.of(state, now, bag.spec.owner)
    policy_budget.spend(left, REFRESH * (1 + len(bag.classes)))
    try:
        changed = _refresh(state, now, bag)
    except Exception as error:
        bag.suspect(EVALUATING, error)
        changed = True
    if changed:
        bag.cache.stamp += 1
        scene.bags += 1
        scene.latest_bags.append((scene.bags, bag.id))
    bag.cache.dirty, bag.cache.scene, bag.cache.at = False, scene.stamp, now


def _refresh(state: State, now: float, bag: Bag) -> bool:
    """Returns whether an attribute has changed at which the policy looks."""
    table, ad, changed = TABLE["bag"], bag.policy.ad, False
    looked, telling = bag.policy.looks.get("bag", set()), bag.policy.at_dispatch.get("bag", set())
    for name in table if "*" in looked else looked:
        if name in table:
            one = table[name]
            value = one.find(state, now, bag)
            if ad.table.get(name, ad) != value:
                ad[one.name] = value
                changed |= name in telling or "*" in telling
    tail = is_in_tail(bag, bag.policy, lambda: in_tail(state, now, bag))
    if tail != bag.replicas.tail:
        bag.replicas.tail = tail
        if "tail" in ad.table:
            ad["Tail"] = tail
            changed = True
    return _refresh_jobs(state, now, bag) or changed


def _refresh_jobs(state: State, now: float, bag: Bag) -> bool:
    looked, table, changed = bag.policy.at_dispatch.get("job", set()), TABLE["job"], False
    fresh = len(bag.cache.jobs) < len(bag.classes)
    places = bag.policy.parameters(bag.body.names) if fresh else ()
    while len(bag.cache.jobs) < len(bag.classes):
        kind, job = len(bag.cache.jobs), Ad()
        sample = bag.classes[kind].sample
        if sample is not None:
            for place in places:
                job[bag.body.names[place]] = read(sample[place], bag.numbering.readings[place])
        for name in ("Replicas", "FailedHosts"):  # single tasks have these; a class has not
            if looked & {name.lower(), "*"}:
                job[name] = []
        bag.cache.jobs.append(job)
        changed = True
    names = [name for name in (table if "*" in looked else looked) if name in table]
    names = [name for name in names if name != "failedhosts"]
    for kind, job in enumerate(bag.cache.jobs if names else ()):
        for name in names:
            value = table[name].find(state, now, JobSubject(bag, kind))
            if name not in bag.body.names and job.table.get(name, job) != value:
                job[table[name].name] = value
                changed = True
    return changed


def job_ad(state: State, now: float, bag: Bag, task: int, looks: dict[str, set[str]]) -> Ad:
    """The ad of one task, with the attributes that are looked at."""
    looked = looks.get("job", set())
    if "*" in looked:
        return attributes.full_ad(state, now, "job", _task(bag, task), bag.spec.owner)
    job, about = Ad(), _task(bag, task)
    for name in looked & TABLE["job"].keys():
        one = TABLE["job"][name]
        job[one.name] = one.find(state, now, about)
    if not bag.spec.calls and any(name.lower() in looked for name in bag.body.names):
        attributes.add_parameters(job, about)
    if any(name.startswith("replica") for name in looked):
        names = bag.policy.mentioned
        attributes.add_replicas(job, state, now, about, bag.spec.owner, names)
    return job


def _task(bag: Bag, task: int) -> JobSubject:
    attempts = bag.places.live.get(task)
    return JobSubject(bag, attempts[0].kind if attempts else bag.class_of(task), task)
