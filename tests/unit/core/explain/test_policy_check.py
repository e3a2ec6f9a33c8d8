"""What is found wrong with policies, and what policies can look at."""

import msgspec
import pytest

from covey.core.errors import InvalidBag
from covey.core.explain import catalogue
from covey.core.explain.answers import PolicyFault, PolicyReport
from covey.core.explain.policy_check import examine, never_together
from covey.core.explain.steps import finish
from covey.core.match.attributes import REPLICA, TABLE
from covey.core.match.policies import PRESETS
from covey.core.record.model import BagId, PolicySpec
from tests.unit.core.match.test_policies import gets, policy
from tests.unit.core.table import Table, spec

SLOW, FAST = {"cpu_mhz": "2000", "arch": "x86_64"}, {"cpu_mhz": "3000", "ann:score": "7"}


def two_hosts(**settings: object) -> Table:
    table = Table(**settings)  # type: ignore[arg-type]
    table.enrol(2, host="a", tags=SLOW)
    table.enrol(4, host="b", tags=FAST)
    return table


def found(table: Table | None, owner: str = "", bag: int = 0, **fields: object) -> PolicyReport:
    if table is None:
        return finish(examine(None, 0.0, policy(**fields)))
    state = table.scheduler.state
    return finish(examine(state, table.now, policy(**fields), state.bags.get(BagId(bag)), owner))


def only(report: PolicyReport) -> PolicyFault:
    (fault,) = report.faults
    return fault


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_sound(name: str) -> None:
    table = two_hosts(lease_seconds=1e9)
    bag = table.submit(spec(2, policy=policy(preset=name)))
    assert len(gets(table.enrol(2, host="c"), 2)) == 2
    for report in (found(None, preset=name), found(table, bag=bag, preset=name)):
        assert (report.faults, report.notes) == ([], [])
    assert found(table, preset=name).meeting == 3


# -- words ---------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [None, two_hosts()])
def test_what_does_not_parse_is_shown_where_it_stops(table: Table | None) -> None:
    fault = only(found(table, requirements="true\n && )", only_sites=("x",)))
    assert (fault.kind, fault.name) == ("syntax", "JobRequirements")
    assert (fault.line, fault.column) == (2, 5)
    assert fault.text == "true\n && )", "its author's words, not what they become"


def test_several_mistakes_are_found_at_once() -> None:
    report = found(None, requirements="(", rank="nowhere + sizes(1)", preset="frugal")
    assert [(one.kind, one.name) for one in report.faults] == [
        ("syntax", "JobRequirements"),
        ("unknown", "Rank"),
        ("function", "Rank"),
    ]
    assert report.faults[2].near[:1] == ["size"]


def test_a_preset_or_a_pattern_that_there_is_not() -> None:
    assert "did you mean 'fast-tail'?" in only(found(None, preset="fast-tial")).message
    assert "pattern" in only(found(None, requirements='regexp("(", Host.Name)')).message


def test_a_time_is_not_taken_for_a_number_of_millions() -> None:
    assert only(found(None, deadline="30M")).kind == "invalid"
    assert not found(None, deadline="30 m").faults


def test_unknown_attributes_have_near_ones() -> None:
    table = two_hosts()
    fault = only(found(table, rank="Host.cpu_mz"))
    assert (fault.kind, fault.column, fault.near[0]) == ("unknown", 6, "Host.cpu_mhz")
    assert not found(table, rank="Host.CPU_MHZ + Bag.JobsLeft + BOT.JobsDone + JobsTotal").faults
    assert only(found(table, rank="Tial ? 1 : 0")).near[0] == "Tail"


def test_tags_of_other_owners_are_not_known() -> None:
    table = two_hosts()
    assert not found(table, owner="ann", rank="Host.score").faults
    assert only(found(table, owner="bob", rank="Host.score")).kind == "unknown"


def test_parameters_are_known_of_a_bag() -> None:
    table = two_hosts()
    bag = table.submit(spec(4))
    assert not found(table, bag=bag, rank="Job.i").faults
    assert only(found(table, bag=bag, rank="Job.alpha")).kind == "unknown"
    assert not found(table, rank="Job.alpha").faults, "some bag may have it"


def test_what_may_yet_come_is_only_noted_if_it_looks_like_a_slip() -> None:
    for table in (None, Table()):
        assert not found(table, rank="Host.fancy_tag").faults
        assert "did you mean Host.ErrorRate?" in found(table, rank="Host.ErorRate").notes[0]


def test_replicas_are_known() -> None:
    wanted = (
        "Job.Replica1.Host.ErrorRate > 0.1 || Job.Replicas[0].Expired || Job.Replica2.Progress < 1"
        " || countMatches(Expired || Host.cpu_mhz < 1, Job.Replicas) > 0"
    )
    assert not found(two_hosts(), replication=wanted).faults
    assert found(two_hosts(), requirements="Expired").faults[0].kind == "unknown"


def test_what_core_would_refuse_is_told() -> None:
    table = two_hosts()
    bag = table.submit(spec(4, idempotent=False))
    assert "must not run twice" in only(found(table, bag=bag, preset="fast-tail")).message
    many = table.submit(spec(1001))
    assert "1,001 different values" in only(found(table, bag=many, rank="Job.i")).message


# -- what it comes to ----------------------------------------------------------------------


def test_errors_are_told_with_the_host_and_the_values() -> None:
    fault = only(found(two_hosts(), rank="1 + Host.arch"))
    assert fault.kind == "type"
    assert fault.message == '1 + Host.arch is an error on a: Host.arch is "x86_64"'
    assert (fault.line, fault.column) == (1, 3)


def test_an_error_behind_a_condition_that_is_false_is_found_at_its_place() -> None:
    wanted = 'Host.Name == "z" && (Host.arch > 3)'
    report = found(two_hosts(), requirements=wanted, avoid_sites=("nowhere",))
    fault = report.faults[0]
    assert (fault.kind, fault.text[fault.column - 1 :]) == ("type", "> 3)")


def test_a_rank_that_is_no_number_and_requirements_that_are() -> None:
    assert (
        only(found(two_hosts(), rank="Host.Name")).message == 'its value is "a" on a, not a number'
    )
    fault = found(two_hosts(), requirements="Host.NumCpus").faults[0]
    assert fault.message == "its value is 2 on a, not true or false"


def test_what_takes_too_long_is_an_error() -> None:
    long = " + ".join(["size(Host.Name)"] * 1200)
    (fault,) = found(two_hosts(), rank=long).faults
    assert "more than" in fault.message


def test_requirements_that_hold_nowhere_are_taken_apart() -> None:
    wanted = 'Host.cpu_mhz > 2500 && (Host.arch == "x86_64" && Host.NumCpus > 1)'
    report = found(two_hosts(), requirements=wanted)
    assert (report.hosts, report.meeting, only(report).kind) == (2, 0, "never")
    assert [(one.text, one.hosts) for one in report.parts] == [
        ("Host.cpu_mhz > 2500", 1),
        ('Host.arch == "x86_64"', 1),
        ("Host.NumCpus > 1", 2),
    ]
    assert report.apart == [["Host.cpu_mhz > 2500", 'Host.arch == "x86_64"']]


def test_the_plain_key_that_is_to_blame_is_named() -> None:
    report = found(two_hosts(), only_sites=("moon",), requirements="Host.NumCpus > 1")
    assert report.apart == [['member(Site.Name, {"moon"})']]


def test_some_tasks_have_a_host_and_others_have_none() -> None:
    table = two_hosts()
    bag = table.submit(spec(4))
    fault = only(found(table, bag=bag, requirements="Job.i < 3"))
    assert fault.message == "it is true on no connected host for tasks with i=3"
    assert not found(table, bag=bag, requirements="Host.NumCpus > 1", rank="Job.i").faults
    both = found(table, bag=bag, requirements='Host.Name == "a" && Job.i >= 0 && JobsLeft > 0')
    assert (both.faults, both.meeting) == ([], 1)
    assert [one.hosts for one in both.parts] == [1, 2, 2]


def test_which_never_hold_together() -> None:
    first, second, third = ("a", 0), ("b", 0), ("c", 0)
    assert never_together([{first}, set(), {second}]) == [[1]]
    assert never_together([{first}, {first, second}, {second}]) == [[0, 2]]
    three = [{first, second}, {second, third}, {first, third}, {first, second, third}]
    assert never_together(three) == [[0, 1, 2]]


def test_a_tail_in_which_it_would_be_stuck_is_noted() -> None:
    report = found(two_hosts(), requirements="!Tail || Host.NumCpus > 99")
    assert report.faults == []
    assert report.notes == ["in the bag's tail its requirements would be met on no connected host"]


def test_replication_is_tried_on_what_runs() -> None:
    table = two_hosts(lease_seconds=1e9)
    bag = table.submit(spec(1))
    gets(table.enrol(host="c"))
    fault = only(found(table, bag=bag, replication="Job.Replica1.Host.Name > 3"))
    assert "(task 0)" in fault.message
    assert not found(table, bag=bag, replication="Job.RunningTime > 3").faults


def test_looking_changes_nothing() -> None:
    table = two_hosts(lease_seconds=1e9)
    wanted = policy(requirements="Job.i < 3 && random() < 2 && Host.cpu_mhz > 0", rank="Job.i")
    bag = table.submit(spec(9, policy=wanted))
    gets(table.enrol(host="c", tags=FAST))
    state = table.scheduler.state
    held = state.bags[BagId(bag)]
    before = (
        state.random.getstate(),
        len(held.classes),
        held.cache.stamp,
        dict(held.policy.ad.table),
    )
    found(table, bag=bag, requirements="Job.i > 3 && random() < 2", preset="reliable-tail")
    catalogue.attributes_of(state, table.now, "")
    after = (
        state.random.getstate(),
        len(held.classes),
        held.cache.stamp,
        dict(held.policy.ad.table),
    )
    assert before == after


# -- what there is -------------------------------------------------------------------------


def test_everything_is_listed_without_a_server() -> None:
    listed = catalogue.attributes_of(None, 0.0, None)
    assert len(listed) == sum(map(len, TABLE.values())) + len(REPLICA) + 1
    assert not any(one.example for one in listed)
    assert all(one.text for one in listed)


def test_examples_are_of_what_is_there() -> None:
    table = two_hosts(lease_seconds=1e9)
    table.submit(spec(2, owner="ann"))
    gets(table.enrol(host="c", tags={**FAST, "bob:secret": "1"}))
    listed = catalogue.attributes_of(table.scheduler.state, table.now, "ann")
    shown = {f"{one.role}.{one.name}": (one.example, one.of) for one in listed}
    assert all(of for example, of in shown.values() if example)
    assert shown["Host.Name"] == ('"c"', "c")
    assert shown["Host.cpu_mhz"] == ("3000", "c")
    assert shown["Host.score"] == ("7", "c")
    assert shown["Host.arch"] == ('"x86_64"', "a")
    assert "Host.secret" not in shown
    assert shown["Bag.JobsRunning"] == ("1", "bag 1")
    assert shown["Job.NumberOfReplicas"] == ("1", "bag 1, task 0")
    assert shown["Job.Replica1.Expired"] == ("false", "attempt 1.1")
    of_bob = catalogue.attributes_of(table.scheduler.state, table.now, "bob")
    assert not [one for one in of_bob if one.role == "Bag" and one.example], "not bob's to see"


def test_a_policy_is_shown_with_its_origins() -> None:
    view = catalogue.view(
        policy(preset="reliable-tail", deadline="30m", rank="1", only_sites=("s",))
    )
    assert {one.name: one.origins for one in view.expressions} == {
        "JobRequirements": ["key only_sites", "preset reliable-tail"],
        "Rank": ["owner"],
        "Concurrency": ["preset reliable-tail"],
        "Deadline": ["key deadline"],
        "ReplicationRequirements": ["preset reliable-tail"],
        "TailCondition": ["default"],
        "MaxReplicas": ["preset reliable-tail"],
    }
    assert view.sticky_tail
    plain = catalogue.view(policy(only_hosts=("n1",)))
    assert plain.expressions[0].origins == ["key only_hosts"]
    assert msgspec.json.decode(msgspec.json.encode(view), type=type(view)) == view
    with pytest.raises(InvalidBag, match="did you mean 'frugal"):
        catalogue.view(PolicySpec(preset="frugl"))


@pytest.mark.parametrize(
    ("key", "text", "role"),
    [
        ("tail", "Host.NumCpus > 3", "Host"),
        ("tail", "JobsUnsent < 3 && Job.Tries > 1", "Job"),
        ("replication", "Pilot.Slots > 1", "Pilot"),
        ("max_replicas", "Site.Price", "Site"),
        ("grid", "Site.Price < 1 || Job.Tries > 1", "Job"),
    ],
)
def test_names_out_of_scope_are_a_fault(key: str, text: str, role: str) -> None:
    faults = finish(examine(None, 0.0, msgspec.structs.replace(PolicySpec(), **{key: text}))).faults
    assert [fault.kind for fault in faults if fault.kind == "scope"] == ["scope"]
    [fault] = [fault for fault in faults if fault.kind == "scope"]
    assert fault.message.startswith(f"{role} is undefined here: ")
    assert fault.column == text.index(f"{role}.") + 1


@pytest.mark.parametrize("text", ["-5", "x", "'soon'", "true", "-3 * 2"])
def test_what_can_be_no_deadline_is_refused(text: str) -> None:
    faults = finish(examine(None, 0.0, PolicySpec(deadline=text))).faults
    [fault] = [fault for fault in faults if fault.kind == "invalid"]
    assert "expected a time (90s, 30m, 2h, 1d)" in fault.message


@pytest.mark.parametrize("text", ["30m", "0", "90", "2 * JobsTotal", "JobsTotal", "undefined"])
def test_what_can_be_a_deadline_is_not(text: str) -> None:
    assert finish(examine(None, 0.0, PolicySpec(deadline=text))).faults == []
