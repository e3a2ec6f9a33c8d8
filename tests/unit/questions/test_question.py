"""Questions and answers can travel, and asking changes nothing."""

from typing import Any, get_args

import msgspec
import pytest

from covey.core.explain.steps import finish
from covey.core.record.model import AttemptId, BagId, JobId, PilotId, PolicySpec
from covey.questions import bag_questions as of_bags
from covey.questions import pilot_questions as of_pilots
from covey.questions import policy_questions as of_policies
from covey.questions import server_questions as of_server
from covey.questions import site_questions as of_sites
from covey.questions.question import LongQuestion, Question
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import spec

MODULES = (of_bags, of_pilots, of_policies, of_server, of_sites)
BAG, PILOT = BagId(1), PilotId(1)
# How a question of this type is asked, where it has fields.
FIELDS: dict[type, tuple[Any, ...]] = {
    of_bags.ViewsOfBags: ((BAG, BagId(7)),),
    of_bags.RunningTasks: (BAG, 10),
    of_bags.MayPrint: (BAG, 0),
    of_bags.FilesOfBag: (BAG,),
    of_pilots.ViewsOfPilots: ("ann",),
    of_pilots.HostsNow: ("ann",),
    of_pilots.JobLives: (JobId("1-1"),),
    of_pilots.GonePilots: ((PILOT, PilotId(7)),),
    of_pilots.HasCallFile: (PILOT, "digest"),
    of_pilots.MayReportOutput: (PILOT, ((AttemptId(1, 1), BAG), (AttemptId(1, 1), BagId(7)))),
    of_policies.AttributesNow: ("ann",),
    of_policies.CheckPolicy: (PolicySpec(requirements="Host.NumCpus > 1"), "ann", BAG),
    of_policies.WhyBag: (BAG, 0),
    of_server.MoreToDo: (0,),
    of_server.ValidToken: ("covey_x",),
    of_sites.HiddenSites: ("ann",),
    of_sites.ViewsOfSites: ("ann",),
    of_sites.WhySite: ("lake", None),
    of_sites.LogOfSite: ("lake",),
    of_sites.WeightsOfSites: ("measured", "ann"),
    of_sites.PastWeights: (None,),
    of_sites.TrialAt: ("lake", JobId("1-1")),
    of_sites.TrialSince: (JobId("1-1"),),
}


def types() -> list[type]:
    found = [value for module in MODULES for value in vars(module).values()]
    kinds = [one for one in found if isinstance(one, type) and one not in (Question, LongQuestion)]
    return [one for one in kinds if issubclass(one, Question | LongQuestion)]


def ask(grounds: Grounds, question: Any) -> Any:
    state, now = grounds.scheduler.state, grounds.now
    if isinstance(question, LongQuestion):
        return finish(question.steps(state, now))
    return question.answer(state, now)


def fields_of(kind: type) -> tuple[Any, ...]:
    """One bag or one pilot, unless the table has more to say."""
    names = [field.name for field in msgspec.structs.fields(kind)]
    usual = {("bag",): (BAG,), ("pilot",): (PILOT,), (): ()}
    return FIELDS[kind] if kind in FIELDS else usual[tuple(names)]


@pytest.fixture(scope="module")
def grounds() -> Grounds:
    found = Grounds(site())
    found.submit(spec(6, owner="ann"))
    found.begin(found.jobs[0], want=1)
    return found


@pytest.mark.parametrize("kind", types(), ids=lambda kind: kind.__name__)
def test_question_and_answer_can_travel(grounds: Grounds, kind: type) -> None:
    question = kind(*fields_of(kind))
    (base,) = kind.__orig_bases__  # type: ignore[attr-defined]
    (answer_type,) = get_args(base)
    sent: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(question), type=kind)
    assert sent == question
    answer = ask(grounds, sent)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=answer_type) == answer
    assert ask(grounds, question) == answer, "asking changes nothing"
    grounds.scheduler.state.check()


def test_of_what_core_does_not_hold(grounds: Grounds) -> None:
    nobody, none = PilotId(99), BagId(99)
    for question in (
        of_bags.OwnerOfBag(none),
        of_bags.SpecOfBag(none),
        of_bags.PolicyOfBag(none),
        of_bags.ProgressOfBag(none),
        of_bags.ViewOfBag(none),
        of_policies.WhyBag(none, -1),
        of_pilots.OwnerOfPilot(nobody),
        of_pilots.WorkOfPilot(nobody),
        of_sites.WhySite("sea", None),
        of_sites.TrialAt("sea", JobId("1-1")),
    ):
        assert ask(grounds, question) is None, question
    assert ask(grounds, of_bags.RunningTasks(none, 10)) == []
    assert ask(grounds, of_pilots.MayReportOutput(nobody, ((AttemptId(1, 1), BAG),))) == [False]
    assert not ask(grounds, of_bags.MayPrint(none, -1))
