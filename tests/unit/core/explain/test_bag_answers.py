"""Why bags wait, why tasks are where they are, why they run twice or not."""

from covey.core.explain import bag_answers
from covey.core.explain.answers import BagAnswer, TaskAnswer
from covey.core.explain.steps import finish
from covey.core.record.events import PauseRequested
from covey.core.record.histories import Ban
from covey.core.record.model import BagId, Need
from tests.unit.core.match.test_blame import a_worker, spoil
from tests.unit.core.match.test_policies import gets, policy
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import Hand, Table, end, spec


def ask(table: Table, bag: int, task: int | None = None) -> BagAnswer:
    state = table.scheduler.state
    return finish(bag_answers.of_bag(state, table.now, state.bags[BagId(bag)], task))


def ask_of(table: Table, bag: int, task: int) -> TaskAnswer:
    state = table.scheduler.state
    return bag_answers.of_task(state, table.now, state.bags[BagId(bag)], task)


def hindered(table: Table, bag: int) -> str:
    state = table.scheduler.state
    return bag_answers.hindrance(state, state.bags[BagId(bag)])


def kinds(answer: BagAnswer) -> list[str]:
    return [reason.kind for reason in answer.reasons]


# -- bags ----------------------------------------------------------------------------------


def test_a_bag_that_is_paused() -> None:
    table = Table()
    bag = table.submit(spec(4))
    table.handle(PauseRequested(table.request(), BagId(bag), "lunch"))
    found = ask(table, bag)
    assert found.summary == "it is paused: lunch"
    assert found.reasons[0].text == f"it is paused: lunch; to continue: covey resume {bag}"


def test_a_bag_without_any_pilot_or_with_those_of_others() -> None:
    table = Table()
    bag = table.submit(spec(4, owner="ann"))
    words = "no pilot is connected; start one with: covey pilot-command"
    assert ask(table, bag).summary == f"4 tasks wait, none is running: {words}"
    assert hindered(table, bag) == words


def test_a_bag_that_no_site_could_get_a_pilot_for() -> None:
    table = Grounds(site("lake", slots=2, wall_seconds=600.0), site("sea", users=("bob",)))
    wide = table.submit(spec(4, need=Need(cores=1000)))
    lake = "lake: a task needs 1,000 slots; its pilots have 2"
    assert hindered(table, wide) == f"no site can get a pilot for it: {lake}"
    assert ask(table, wide).reasons[0].text == hindered(table, wide)
    long = table.submit(spec(4, need=Need(limit_seconds=3600.0)))
    assert "lake: tasks may take 3,600 s" in hindered(table, long)
    away = table.submit(spec(4, policy=policy(avoid_sites=("lake",))))
    assert "lake: its policy excludes it" in hindered(table, away)
    picky = table.submit(spec(4, policy=policy(requirements='Site.Name == "river"')))
    table.later(2.0)
    assert "lake: its policy does not want it" in hindered(table, picky)
    assert hindered(table, table.submit(spec(4))) == ""  # one is on its way
    kept = Grounds(site("sea", users=("bob",)))
    words = "no site can get a pilot for it: no site accepts tasks of its owner"
    assert hindered(kept, kept.submit(spec(4))) == words


def test_a_bag_for_a_site_that_there_is_not() -> None:
    table = Grounds(site("lake"), site("sea"))
    bag = table.submit(spec(4, policy=policy(only_sites=("nosuch",))))
    words = "there is no site nosuch (sites: lake, sea)"
    assert hindered(table, bag) == words
    assert ask(table, bag).summary == f"4 tasks wait, none is running: {words}"
    hand = table.enrol(1, host="a", site="lake")
    hand.sync(1)
    assert hindered(table, bag) == words
    assert kinds(ask(table, bag)) == ["unknown site"]
    other = table.submit(spec(4, policy=policy(only_sites=("nosuch", "Lake"))))
    assert "nosuch" not in hindered(table, other)
    table.enrol(1, host="b", site="nosuch")  # somebody started one there by hand
    assert hindered(table, bag) == ""


def test_a_bag_whose_attempts_cannot_be_made_says_why_until_one_is_done() -> None:
    table = Table()
    bag = table.submit(spec(4))
    bad, good = table.enrol(1, host="bad"), table.enrol(1, host="good")

    def fail(hand: Hand) -> None:
        words = "cannot get an input: refused"
        hand.sync(0, [end(hand.ask(1), outcome="host")._replace(message=words)])

    fail(bad)
    assert hindered(table, bag) == "cannot get an input: refused"
    held = bad.ask(1)
    assert hindered(table, bag) == "cannot get an input: refused"
    (reason,) = [one for one in ask(table, bag).reasons if one.kind == "host"]
    assert reason.hosts == ["bad"]
    assert ask(table, bag).summary.endswith(reason.text)
    assert reason.text.endswith("; a task fails when this has happened 20 times")
    other = good.ask(1)
    assert hindered(table, bag) == ""  # there it may be well
    good.sync(0, [end(other, outcome="failed")])
    assert hindered(table, bag) == "cannot get an input: refused"
    bad.sync(0, [end(held)])
    assert hindered(table, bag) == ""


def test_a_trouble_is_not_told_for_ever() -> None:
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(4))
    hand = table.enrol(1)
    hand.sync(0, [end(hand.ask(1), outcome="host")._replace(message="no room")])
    hand.ask(1)
    assert hindered(table, bag) == "no room"
    table.later(bag_answers.TROUBLE_SECONDS + 1.0)
    assert hindered(table, bag) == ""


def test_a_bag_too_large_for_everybody() -> None:
    table = Table()
    bag = table.submit(spec(4, need=Need(cores=4, gpus=1)))
    table.enrol(2, host="a")
    found = ask(table, bag)
    assert kinds(found) == ["resources"]
    assert found.reasons[0].text == hindered(table, bag)
    (near,) = found.near
    assert (near.host, near.missing) == ("a", ["4 cores", "1 GPUs"])
    assert near.values == {"Pilot.Slots": "2", "Host.Gpus": "0"}


def test_requirements_that_nobody_meets_and_who_came_close() -> None:
    table = Table()
    wanted = policy(requirements="Host.cpu_mhz > 2500 && Host.NumCpus > 1")
    bag = table.submit(spec(4, policy=wanted))
    hands = [
        table.enrol(1, host="slow", tags={"cpu_mhz": "2000"}),
        table.enrol(2, host="close", tags={"cpu_mhz": "2400"}),
    ]
    found = ask(table, bag)
    assert (found.hosts, found.able, kinds(found)) == (2, 0, ["requirements"])
    assert found.summary.endswith("no connected host meets its requirements")
    (near,) = found.near
    assert (near.host, near.missing) == ("close", ["Host.cpu_mhz > 2500"])
    assert near.values == {"Host.cpu_mhz": "2400"}
    assert hindered(table, bag) == "", "nobody has asked for its tasks yet"
    for hand in hands:
        gets(hand)
    assert hindered(table, bag) == (
        f"no connected host meets its requirements; see: covey explain {bag}"
    )
    assert gets(table.enrol(2, host="good", tags={"cpu_mhz": "2600"})) == [(bag, 0)]
    assert hindered(table, bag) == ""
    assert (ask(table, bag).able, kinds(ask(table, bag))) == (1, ["requirements"])


def test_tasks_of_one_class_that_nobody_can_run() -> None:
    table = Table()
    bag = table.submit(spec(4, policy=policy(requirements="Job.i < 3")))
    table.enrol(4)
    found = ask(table, bag)
    assert found.able == 1
    assert found.reasons[-1].text == "no connected host can run tasks with i=3"
    assert kinds(ask(table, bag, 3)) == ["requirements"]
    assert ask(table, bag, 3).able == 0
    assert ask(table, bag, 2).reasons == []


def test_everything_is_taken() -> None:
    table = Table()
    bag = table.submit(spec(4))
    gets(table.enrol(2, host="a"), 2)
    found = ask(table, bag)
    assert found.summary == "2 tasks wait, 2 tasks are running: every slot of 1 host is in use"
    assert (found.running, found.waiting, found.able) == (2, 2, 1)
    assert kinds(found) == ["full"]


def test_concurrency_holds_it_back() -> None:
    table = Table()
    bag = table.submit(spec(4, policy=policy(concurrency="1")))
    gets(table.enrol(2, host="a"), 2)
    assert kinds(ask(table, bag)) == ["concurrency"]


def test_a_host_whose_time_is_nearly_over() -> None:
    grounds = Grounds(site(wall_seconds=2000.0), lease_seconds=1e6)
    bag = grounds.submit(spec(2, need=Need(limit_seconds=1000.0)))
    grounds.begin(grounds.jobs[0], 0)
    grounds.now += 1001
    found = ask(grounds, bag)
    assert kinds(found) == ["ending", "queue"]
    assert found.reasons[0].text == "the time of 1 host is too short for such a task"
    assert found.able == 0


def test_rests_and_bans_have_an_end() -> None:
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(40, retries=9))
    bad, good = a_worker(table, "bad"), table.enrol(4, host="good")
    spoil(bad)
    found = ask(table, bag)
    resting = next(reason for reason in found.reasons if reason.kind == "resting")
    assert resting.hosts == ["bad"]
    assert resting.until > table.now
    assert found.able == 1
    assert len(gets(good, 4)) == 4


def test_a_banned_host_is_tried_with_one_task_when_its_time_is_over() -> None:
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(40, owner="ann"))
    bad, good = table.enrol(4, host="bad"), table.enrol(1, host="good")
    state = table.scheduler.state
    state.hosts["bad"].history.bans["ann"] = Ban(table.now, table.now + 60.0, 1)
    assert len(gets(good)) == 1
    found = ask(table, bag)
    assert kinds(found) == ["full", "banned"]
    assert (found.reasons[1].hosts, found.reasons[1].until) == (["bad"], table.now + 60.0)
    table.later(61)
    assert gets(bad, 4) == [(bag, 1)]
    assert kinds(ask(table, bag)) == ["full", "tried"]


def test_nobody_rests_where_nobody_else_can_do_it() -> None:
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(40, retries=9))
    spoil(a_worker(table, "bad"))
    found = ask(table, bag)
    assert (kinds(found), found.able) == ([], 1)


def test_an_open_bag_without_tasks_left() -> None:
    table = Table()
    bag = table.submit(spec(1, open=True))
    gets(table.enrol())
    found = ask(table, bag)
    assert found.summary == "no task waits: 1 task is running"
    assert kinds(found) == ["open"]


def test_tasks_that_failed_elsewhere_wait_for_a_failover_site() -> None:
    table = Table()
    bag = table.submit(spec(1, policy=policy(failover_sites=("cloud",))))
    worker = a_worker(table, "one")
    worker.gets()
    worker.ends("failed")
    found = ask(table, bag)
    assert kinds(found) == ["failover"]
    assert "may only go to cloud" in found.summary
    assert "it failed elsewhere" in ask_of(table, bag, 0).summary


# -- tasks ---------------------------------------------------------------------------------


def test_a_task_that_runs_and_why_there() -> None:
    table = Table()
    low = table.submit(spec(4, policy=policy(rank="1")))
    high = table.submit(spec(4, policy=policy(rank="2.5")))
    hand = table.enrol(1, host="a")
    assert gets(hand) == [(high, 0)]
    found = ask_of(table, high, 0)
    assert (found.state, found.summary, found.values) == ("running", "it runs on a", {"i": "0"})
    (running,) = found.running
    assert (running.host, running.rank, running.replica, running.ahead) == ("a", 2.5, False, False)
    assert "had rank 2.5 there" in running.text
    assert [(one.bag, one.rank) for one in running.behind] == [(low, 1.0)]


def test_a_task_that_was_sent_ahead() -> None:
    table = Table()
    bag = table.submit(spec(4, policy=policy(concurrency="3")))
    gets(table.enrol(1, host="a"))
    assert ask_of(table, bag, 0).summary == "it runs on a"
    assert ask_of(table, bag, 2).summary == "it waits for a slot of a"


def test_a_task_that_is_over() -> None:
    table = Table()
    bag = table.submit(spec(5, retries=0))
    worker = a_worker(table, "one")
    worker.gets()
    worker.ends()
    worker.gets()
    worker.ends("failed")
    assert ask_of(table, bag, 0).state == "done"
    assert ask_of(table, bag, 1).state == "failed"


def test_asking_changes_nothing() -> None:
    table = Table(lease_seconds=1e9)
    wanted = policy(requirements="Job.i < 20 && random() < 2", rank="random()", preset="fast-tail")
    bag = table.submit(spec(30, policy=wanted))
    gets(table.enrol(2), 2)
    state = table.scheduler.state
    held = state.bags[BagId(bag)]
    before = (
        state.random.getstate(),
        len(held.classes),
        held.cache.stamp,
        held.cache.dirty,
        held.replicas.tail,
    )
    for task in (None, 0, 29):
        ask(table, bag, task)
    for task in range(30):
        ask_of(table, bag, task)
    state.check()
    assert before == (
        state.random.getstate(),
        len(held.classes),
        held.cache.stamp,
        held.cache.dirty,
        held.replicas.tail,
    )
