"""Core against anything that can happen to it: legal, late, repeated, lost, and nonsense.

After every event the invariants hold. A message that is refused changes nothing but when its pilot
was last heard. A server that ends in order leaves policies and what is known of hosts as they were.
In the end, when everybody behaves, everything finishes, and each task has one result.
"""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from covey.core.match.policies import PRESETS
from covey.core.record.actions import Refuse
from covey.core.record.events import (
    BagSubmitted,
    CancelRequested,
    CloseRequested,
    DrainRequested,
    Event,
    FollowRequested,
    JobEnded,
    JobRefused,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JobVanished,
    PauseRequested,
    PilotEnrolled,
    PilotLeft,
    PolicyRequested,
    ProgramHeard,
    RequestDropped,
    ResumeRequested,
    RetryRequested,
    SegmentAppended,
    SiteAnswered,
    SiteFailed,
    SiteRemoved,
    SiteSaved,
    SiteStatusRequested,
    SiteTried,
    SyncReceived,
    Ticked,
)
from covey.core.record.input_files import version_of
from covey.core.record.model import (
    BagId,
    BagSpec,
    Blob,
    Condition,
    InputChanges,
    More,
    Need,
    PilotId,
    Placed,
    PolicySpec,
    RequestId,
    Rows,
    Rule,
    Segment,
    SiteSpec,
    SiteStatus,
)
from covey.core.state import Bag
from covey.core.values.space import Axis, Range
from covey.pilot.protocol.messages import (
    OK,
    PILOT_OUTCOMES,
    Answer,
    End,
    Enrol,
    Enrolled,
    Leave,
    Sync,
)
from covey.wire import ResultQuery
from tests.property.model import SETTINGS, Bench, Hand, picture, remembered


def bags(
    count: int,
    rows: bool,
    ruled: bool,
    open_: bool,
    key: str,
    chances: tuple[int, int, int],
    policy: PolicySpec,
) -> BagSpec:
    """The only value of a task is its number. Every fourth is of a class of its own, if any is."""
    rule = Rule(when=(Condition(name="i", values=tuple(range(3, 200, 4))),), need=Need(cores=2))
    retries, overtimes, breaker = chances
    first = segment(0, count, rows)
    return BagSpec(
        argv=("work",),
        space=first.space,
        rows=first.rows,
        rules=(rule,) if ruled else (),
        open=open_,
        key=key,
        retries=retries,
        overtimes=overtimes,
        breaker=breaker,
        idempotent=retries != 1,
        policy=policy if retries != 1 else once(policy),
    )


def once(policy: PolicySpec) -> PolicySpec:
    """The same, for tasks that must not run twice."""
    preset = "" if policy.preset.endswith("tail") else policy.preset
    return replace(policy, replication="", preset=preset)


def other_files(number: int) -> InputChanges:
    return InputChanges(inputs=(Placed(path="in", blob=Blob(f"{number:064x}", 1)),))


def segment(start: int, count: int, rows: bool) -> Segment:
    if rows:
        return Segment(rows=Rows(digest=str(start), form="lines", names=("i",), count=count))
    return Segment(space=Axis("i", Range(str(start), "1", count)))


POLICIES = st.builds(
    PolicySpec,
    preset=st.sampled_from(("", "", *PRESETS)),
    requirements=st.sampled_from(
        (
            "",
            "",
            'Host.Name != "host-1"',
            "Job.i % 2 == 0 || Pilot.Slots > 1",
            "Host.ErrorRate < 0.3 && Host.speed > 1",
            "!Tail || Host.ConsecutiveFailures < 2",
            "false",
        )
    ),
    rank=st.sampled_from(("", "Host.speed", "-JobsLeft", "Job.i")),
    concurrency=st.sampled_from(("", "1", "Pilot.Slots + 1", "Job.i")),
    deadline=st.sampled_from(("", "", "10s", "Job.i + 5")),
    replication=st.sampled_from(("", "true", "Job.NumberOfReplicas < 2", "Job.RunningTime > 3")),
    tail=st.sampled_from(("", "true", "JobsUnsent == 0")),
    sticky_tail=st.sampled_from((None, True, False)),
    max_replicas=st.sampled_from(("", "1", "3")),
    only_sites=st.sampled_from(((), (), ("near",))),
    failover_sites=st.sampled_from(((), (), ("far",))),
)
WRONG_POLICIES = (
    PolicySpec(rank="1 +"),
    PolicySpec(preset="fats"),
    PolicySpec(only_hosts=("host",) * 10_001),
)
SPECS = st.builds(
    bags,
    st.integers(1, 12),
    st.booleans(),
    st.booleans(),
    st.sampled_from((False, False, True)),
    st.sampled_from(("", "", "one", "two")),
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from((0, 3, 30))),
    st.one_of(st.just(PolicySpec()), POLICIES),
)
MOST_BAGS = 6
MOST_JOBS = 200  # that wait: bags are small, and so are their demands
JOB_NEWS = (JobSubmitted, JobStarted, JobRefused, JobEnded, JobRequeued, JobVanished)
CHANGES: tuple[Callable[[RequestId, BagId], Event], ...] = (
    CancelRequested,
    CloseRequested,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    lambda request, bag: RetryRequested(request, bag, (0, 2, 3, 7), More(2.0, 1.5)),
)
WRONG_SPECS = (
    BagSpec(argv=()),
    BagSpec(argv=("work",), retries=-1),
    BagSpec(argv=("work",), space=Axis("i", Range("0", "1", 0))),
    BagSpec(argv=("work",), space=Axis("not a name", Range("0", "1", 1))),
)
WRONG_ENROLS = (
    Enrol("short", "host", 1),
    Enrol("key-of-nobody", "", 1),
    Enrol("key-of-nobody", "host", 0),
    Enrol("key-of-nobody", "host", 1, protocol=99),
)


class SchedulerMachine(RuleBasedStateMachine):
    """`self.hands` are pilots that are alive, as far as they know."""

    @initialize(spec=SPECS, pilots=st.integers(1, 3))
    def begin(self, spec: BagSpec, pilots: int) -> None:
        self.bench = Bench()
        self.hands: dict[int, Hand] = {}
        self.syncs: dict[int, tuple[Hand, Sync]] = {}  # by request
        self.enrols: dict[int, Hand | None] = {}
        self.keys = 0
        self.given: dict[tuple[int, int], tuple[int, int]] = {}
        self.submit(spec)
        for _ in range(pilots):
            self.enrol(2, True)
        self.settle()
        self.hear_enrolments()

    # -- people ----------------------------------------------------------------------------

    @precondition(lambda self: self.bench.scheduler.state.counters.next_bag <= MOST_BAGS)
    @rule(spec=SPECS)
    def submit(self, spec: BagSpec) -> None:
        self.bench.handle(BagSubmitted(self.bench.request("submit"), spec))

    @rule(spec=st.sampled_from(WRONG_SPECS))
    def submit_nonsense(self, spec: BagSpec) -> None:
        self.refused(BagSubmitted(self.bench.request("submit"), spec))

    @rule(bag=st.integers(1, 4), kind=st.sampled_from(CHANGES))
    def change(self, bag: int, kind: Callable[[RequestId, BagId], Event]) -> None:
        request, known = self.bench.request("change"), self.bench.scheduler.state.counters.next_bag
        if bag < known:
            self.bench.handle(kind(request, BagId(bag)))
        else:
            self.refused(kind(request, BagId(bag)))

    @rule(bag=st.integers(1, 2), rounds=st.integers(0, 3))
    def correct_files(self, bag: int, rounds: int) -> None:
        """Tasks that have ended run again with other input files, perhaps at once."""
        if bag < self.bench.scheduler.state.counters.next_bag:
            request = self.bench.request("change")
            changes = other_files(request)
            self.bench.handle(RetryRequested(request, BagId(bag), done=True, changes=changes))
            for _ in range(rounds):
                self.work_a_little(["ok"], True)

    @rule(bag=st.integers(1, 4), policy=POLICIES)
    def govern(self, bag: int, policy: PolicySpec) -> None:
        request, live = self.bench.request("policy"), self.alive(bag)
        if live is not None and not live.spec.idempotent:
            policy = once(policy)
        event = PolicyRequested(request, BagId(bag), policy)
        if bag < self.bench.scheduler.state.counters.next_bag:
            self.bench.handle(event)
        else:
            self.refused(event)

    @rule(bag=st.integers(1, 4), policy=st.sampled_from(WRONG_POLICIES))
    def govern_by_nonsense(self, bag: int, policy: PolicySpec) -> None:
        if self.alive(bag) is not None:
            self.refused(PolicyRequested(self.bench.request("policy"), BagId(bag), policy))

    def alive(self, bag: int) -> Bag | None:
        live = self.bench.scheduler.state.bags.get(BagId(bag))
        return live if live is not None and live.status in ("running", "paused") else None

    @rule(bag=st.integers(1, 4), count=st.integers(1, 6), key=st.sampled_from(("", "a", "b")))
    def append(self, bag: int, count: int, key: str) -> None:
        live = self.bench.scheduler.state.bags.get(BagId(bag))
        request = self.bench.request("append")
        start, rows = (live.total, live.spec.rows is not None) if live is not None else (0, False)
        event = SegmentAppended(request, BagId(bag), segment(start, count, rows), key)
        if live is not None and live.open and live.status in ("running", "paused"):
            self.bench.handle(event)
        else:
            self.refused(event)

    @rule(bag=st.integers(1, 4), task=st.integers(-1, 5))
    def follow(self, bag: int, task: int) -> None:
        self.bench.handle(FollowRequested(BagId(bag), task))

    @rule(bag=st.integers(1, 4))
    def wait_for_calls(self, bag: int) -> None:
        self.bench.handle(ProgramHeard(BagId(bag)))

    @rule()
    def read_rows(self) -> None:
        self.bench.read_rows()

    # -- the machine -----------------------------------------------------------------------

    @rule(count=st.integers(1, 8))
    def commit(self, count: int) -> None:
        self.bench.commit(count)

    @rule(seconds=st.sampled_from((0.1, 1.0, 12.0, 35.0)))
    def time_passes(self, seconds: float) -> None:
        self.bench.pass_time(seconds)

    @rule(seconds=st.sampled_from((6.0, 40.0)))
    def server_stalls(self, seconds: float) -> None:
        self.bench.now += seconds
        self.bench.handle(Ticked())

    @rule(rarely=st.integers(0, 5))
    def crash(self, rarely: int) -> None:
        if rarely:
            return
        self.bench.restart()
        self.syncs.clear()
        self.enrols.clear()

    @rule(rarely=st.integers(0, 5))
    def ends_in_order(self, rarely: int) -> None:
        """The server: what decides, and what is known of hosts, is the same for the next one."""
        if rarely:
            return
        self.bench.handle(DrainRequested())
        self.settle()
        state = self.bench.scheduler.state
        policies = {id_: bag.policy.spec for id_, bag in state.bags.items()}
        known = remembered(self.bench.scheduler)
        self.bench.restart()
        self.syncs.clear()
        self.enrols.clear()
        state = self.bench.scheduler.state
        assert {id_: bag.policy.spec for id_, bag in state.bags.items()} == policies
        assert remembered(self.bench.scheduler) == known

    @precondition(lambda self: self.bench.jobs)
    @rule(data=st.data(), kind=st.sampled_from(JOB_NEWS))
    def site_speaks(self, data: st.DataObject, kind: type) -> None:
        """The truth, or not."""
        job = data.draw(st.sampled_from(list(self.bench.jobs)))
        if kind in (JobSubmitted, JobStarted):
            self.bench.handle(kind(job))
            return
        if kind in (JobRefused, JobEnded):
            del self.bench.jobs[job]
        self.bench.handle(kind(job, "so it is"))
        self.bench.handle(kind(job, "it says so twice"))

    @rule(name=st.sampled_from(("local", "near", "far")), away=st.booleans())
    def site_answers_or_not(self, name: str, away: bool) -> None:
        self.bench.handle(SiteFailed(name, "away") if away else SiteAnswered(name))

    @rule(
        name=st.sampled_from(("local", "near", "far")),
        what=st.sampled_from(("save", "save", "remove", "try", *SiteStatus)),
        limit=st.integers(0, 2),
        users=st.sampled_from(((), ("ann",))),
    )
    def administer(self, name: str, what: str, limit: int, users: tuple[str, ...]) -> None:
        request = self.bench.request("site")
        spec = SiteSpec(
            name=name, driver="virtual", slots=2, queued=limit, per_user=limit, users=users
        )
        event: Event
        match what:
            case "save":
                event = SiteSaved(request, spec)
            case "remove":
                event = SiteRemoved(request, name)
            case "try":
                event = SiteTried(request, name)
            case _:
                event = SiteStatusRequested(request, name, SiteStatus(what))
        self.bench.handle(event)
        waiting = [job for job in self.bench.scheduler.state.jobs.values() if not job.running]
        assert len(waiting) <= MOST_JOBS

    # -- pilots ----------------------------------------------------------------------------

    @rule(slots=st.integers(1, 3), with_job=st.booleans(), host=st.integers(1, 3))
    def enrol(self, slots: int, with_job: bool, host: int = 1) -> None:
        job = next(iter(self.bench.jobs), "") if with_job else ""
        self.keys += 1
        request = self.bench.request("enrol")
        self.enrols[request] = None
        site, tags = ("near", "far")[host % 2], {"speed": str(host)}
        enrol = Enrol(f"key-{self.keys:08}", f"host-{host}", slots, site, job, tags)
        self.bench.handle(PilotEnrolled(request, enrol, "word", "digest"))

    @rule(enrol=st.sampled_from(WRONG_ENROLS))
    def enrol_nonsense(self, enrol: Enrol) -> None:
        self.refused(PilotEnrolled(self.bench.request("enrol"), enrol, "word", "digest"))

    @rule()
    def hear_enrolments(self) -> None:
        for request in list(self.enrols):
            reply = self.bench.replies.pop(request, None)
            if isinstance(reply, Enrolled):
                self.hands[reply.pilot] = Hand(reply.pilot, reply.epoch, given=self.given)
            if reply is not None:
                del self.enrols[request]

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), want=st.integers(0, 5), most=st.integers(0, 6))
    def sync(self, data: st.DataObject, want: int, most: int) -> None:
        hand = self.a_hand(data)
        if len(hand.open) < 2:
            self.send(hand, hand.sync(want, most))

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def sync_again(self, data: st.DataObject) -> None:
        hand = self.a_hand(data)
        if hand.open:
            self.send(hand, hand.open[data.draw(st.sampled_from(list(hand.open)))])

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), outcome=st.sampled_from(PILOT_OUTCOMES))
    def task_ends(self, data: st.DataObject, outcome: str) -> None:
        hand = self.a_hand(data)
        if hand.holding:
            hand.end(data.draw(st.sampled_from(list(hand.holding))), outcome)

    @rule(lost=st.booleans())
    def hear_answers(self, lost: bool) -> None:
        """… or lose them all."""
        for request, (hand, sync) in list(self.syncs.items()):
            reply = self.bench.replies.pop(request, None)
            if reply is None:
                continue
            del self.syncs[request]
            if lost or hand.id not in self.hands:
                continue
            if isinstance(reply, Answer):
                hand.answered(sync.number, reply)
            elif isinstance(reply, Refuse) and reply.problem.value == "unknown-pilot":
                del self.hands[hand.id]

    @precondition(lambda self: self.syncs)
    @rule(data=st.data())
    def connection_breaks(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(list(self.syncs)))
        hand, _ = self.syncs.pop(request)
        self.bench.open_requests.setdefault(request, "dropped")
        self.bench.handle(RequestDropped(RequestId(request), PilotId(hand.id)))

    @precondition(lambda self: self.hands)
    @rule(
        outcomes=st.lists(st.sampled_from((*PILOT_OUTCOMES, OK, OK)), max_size=4),
        durable=st.booleans(),
        rounds=st.integers(1, 4),
    )
    def all_goes_well(self, outcomes: list[str], durable: bool, rounds: int) -> None:
        """… for a while: work is fetched, and some of it ends."""
        for _ in range(rounds):
            self.work_a_little(outcomes, durable)

    def work_a_little(self, outcomes: list[str], durable: bool) -> None:
        self.hear_answers(lost=False)
        for hand in list(self.hands.values()):
            for key, outcome in zip(list(hand.holding), outcomes, strict=False):
                hand.end(key, outcome)
            if len(hand.open) < 2:
                self.send(hand, hand.sync(3, 6))
        if durable:
            self.settle()
            self.hear_answers(lost=False)

    @precondition(lambda self: len(self.hands) > 1)
    @rule(data=st.data(), in_order=st.booleans())
    def ends_itself(self, data: st.DataObject, in_order: bool) -> None:
        """In order, or by kill -9."""
        hand = self.a_hand(data)
        del self.hands[hand.id]
        if not in_order:
            return
        request = self.bench.request("leave")
        self.bench.handle(PilotLeft(request, Leave(hand.id, hand.epoch, "enough")))

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), wrong=st.integers(0, 6))
    def sync_nonsense(self, data: st.DataObject, wrong: int) -> None:
        hand = self.a_hand(data)
        pilot = self.bench.scheduler.state.pilots.get(PilotId(hand.id))
        number = hand.number + 1
        right = Sync(hand.id, hand.epoch, number, 0, 1)
        end = End(hand.epoch, 1, 1, 0, OK)
        if pilot is not None and not pilot.resync and wrong == 0:
            right = right._replace(epoch=self.bench.scheduler.state.epoch)
            self.refused(self.received(right._replace(number=pilot.last + 5)))
            return
        nonsense = {
            0: right._replace(pilot=99),
            1: right._replace(pilot=99),
            2: right._replace(epoch=self.bench.scheduler.state.epoch + 1),
            3: right._replace(received=number),
            4: right._replace(want=-1),
            5: right._replace(ends=[end._replace(outcome="perhaps")]),
            6: right._replace(ends=[end] * (SETTINGS.most_ends + 1)),
        }
        self.refused(self.received(nonsense[wrong]))

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), task=st.integers(0, 14), outcome=st.sampled_from(PILOT_OUTCOMES))
    def lies(self, data: st.DataObject, task: int, outcome: str) -> None:
        """A well-formed end of an attempt that was never made: it may count, nothing may break."""
        hand = self.a_hand(data)
        hand.unsent.append(End(hand.epoch, 10**6 + task, 1, task, outcome))

    # -- what is always so -----------------------------------------------------------------

    def a_hand(self, data: st.DataObject) -> Hand:
        return self.hands[data.draw(st.sampled_from(list(self.hands)))]

    def send(self, hand: Hand, sync: Sync) -> None:
        event = self.received(sync)
        self.syncs[event.request] = (hand, sync)
        self.bench.handle(event)

    def received(self, sync: Sync) -> SyncReceived:
        return SyncReceived(self.bench.request("sync"), sync)

    def refused(self, event: Event) -> None:
        """It is refused, and changes nothing."""
        before = picture(self.bench.scheduler)
        actions = self.bench.handle(event)
        assert [type(action) for action in actions] == [Refuse], actions
        assert picture(self.bench.scheduler) == before

    # -- how it ends -----------------------------------------------------------------------

    def teardown(self) -> None:
        """Everybody behaves from now on: all that is not cancelled finishes."""
        if not hasattr(self, "bench"):
            return
        bench = self.bench
        self.hands.clear()
        self.settle()
        self.let_them_end()
        for _ in range(2):  # those that died are found out
            bench.pass_time(SETTINGS.lease_seconds + 5)
            self.settle()
        request = bench.request("enrol")
        bench.handle(PilotEnrolled(request, Enrol("key-of-the-last", "host", 3), "word", "digest"))
        self.settle()
        enrolled = bench.replies[request]
        assert isinstance(enrolled, Enrolled | Refuse)
        if isinstance(enrolled, Refuse):  # there are enough, though they are dead
            return
        self.work(Hand(enrolled.pilot, enrolled.epoch, given=self.given))
        for view in bench.record.bags():
            assert view.over, view
            results = bench.record.results(view.id, ResultQuery())
            if view.status == "finished":
                assert [row.task for row in results] == list(range(view.total))
            assert sum(row.outcome == OK for row in results) == view.done
            self.check_versions(view.id)

    def check_versions(self, bag: int) -> None:
        """Every attempt had the input files that the record says it had."""
        kept = self.bench.record.load(BagId(bag))
        assert kept is not None
        firsts = [version.first for version in kept.bag.input_versions]
        for attempt, (of, version) in self.given.items():
            assert of != bag or version_of(firsts, attempt) == version, attempt

    def let_them_end(self) -> None:
        """Owners close what is open, ask for nothing special, and resume what is paused. Sites let
        everybody in."""
        for name in ("near", "far"):
            spec = SiteSpec(name=name, driver="virtual", queued=1)
            self.bench.handle(SiteSaved(self.bench.request("site"), spec))
        for id_ in list(self.bench.scheduler.state.bags):
            request = self.bench.request("policy")
            self.bench.handle(PolicyRequested(request, id_, PolicySpec()))
            for kind in (CloseRequested, ResumeRequested):
                self.bench.handle(kind(self.bench.request("change"), id_))
        self.settle()

    def work(self, hand: Hand) -> None:
        bench = self.bench
        for _ in range(300):
            live = bench.scheduler.state.bags.values()
            if all(bag.status not in ("running", "paused") for bag in live):
                break
            if any(bag.status == "paused" or bag.open for bag in live):
                self.let_them_end()
            event = self.received(hand.sync(3, 6))
            bench.handle(event)
            self.settle()
            bench.now += 1.0
            bench.handle(Ticked())
            self.settle()
            reply = bench.replies.pop(event.request, None)
            if isinstance(reply, Answer):
                hand.answered(event.sync.number, reply)
            for key in list(hand.holding):
                hand.end(key, OK)
        self.settle()

    def settle(self) -> None:
        while self.bench.writes or self.bench.loads or self.bench.rows:
            self.bench.commit(100)
            self.bench.read_rows()


SchedulerMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None
)
TestScheduler = SchedulerMachine.TestCase
