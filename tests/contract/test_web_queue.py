"""A driver that makes calls of an API: what is its own, beside what holds for all (test_sites)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.core.errors import BadConfig
from covey.core.record.events import JobEnded, JobRefused, JobSubmitted, SiteAnswered, SiteFailed
from covey.core.record.model import Option, SiteSpec
from covey.sites import plugins
from covey.sites.plugins import Plugin
from tests.contract.placing import job
from tests.contract.test_sites import OfWeb
from tests.contract.web_queue import Web

KNOWN = {"web": Plugin("web", "tests", Web())}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[OfWeb]:
    made = OfWeb(tmp_path, machine={"kind": "large"}, volumes=({"name": "scratch"},))
    yield made
    made.close()


def test_options_that_are_tables_reach_the_api(cloud: OfWeb) -> None:
    cloud.manager().submit((job(1),))
    cloud.wait(JobSubmitted, job(1))
    [order] = cloud.api.orders.values()
    assert (order["kind"], order["volumes"], order["cores"]) == ("large", ["scratch"], 2)


def test_a_lost_answer_does_not_start_a_job_twice(cloud: OfWeb) -> None:
    one = job(1)
    cloud.api.deaf = True
    manager = cloud.manager()
    manager.submit((one,))
    cloud.wait(SiteFailed)
    cloud.api.deaf = False
    assert cloud.wait(JobSubmitted, one) == JobSubmitted(one.id, "i-0")
    cloud.pilot(one)
    cloud.send_home(one)
    cloud.wait(JobEnded, one)
    assert (list(cloud.api.orders), cloud.starts(one)) == (["covey-q1-1-1"], 1)


def test_a_refusal_is_about_the_job_and_no_answer_is_about_the_site(cloud: OfWeb) -> None:
    manager = cloud.manager()
    cloud.wait(SiteAnswered)
    cloud.api.trouble = 403, "over quota"
    manager.submit((job(1),))
    assert cloud.wait(JobRefused, job(1)) == JobRefused(job(1).id, "over quota")
    assert not cloud.heard(SiteFailed)
    cloud.api.trouble = 503, "slow down"
    manager.submit((job(2),))
    assert cloud.wait(JobRefused, job(2)) == JobRefused(job(2).id, "there: slow down")
    assert cloud.wait(SiteFailed) == SiteFailed("there", "slow down")
    cloud.api.trouble = None
    cloud.wait(SiteAnswered, count=2)


def test_facts_come_from_options() -> None:
    spec = SiteSpec(name="s", driver="web", options={"url": "http://a", "machine": {"whole": True}})
    facts = plugins.described(spec, KNOWN).facts
    assert (facts.whole_nodes, facts.accounts) == (True, ())
    assert facts.log == "http://a/jobs/{handle}/log"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "site s: driver 'web' needs url"),
        (
            {"url": "a", "machine": {"kidn": "x"}},
            "site s: option 'machine.kidn' of driver 'web' is unknown; did you mean 'kind'? "
            "(options: kind, whole)",
        ),
        (
            {"url": "a", "machine": {"whole": 3}},
            "site s: option 'machine.whole' of driver 'web' is 3; it must be true or false",
        ),
        (
            {"url": "a", "volumes": [{"name": "a"}, {"name": "b", "sise_gb": 3}]},
            "site s: option 'volumes[1].sise_gb' of driver 'web' is unknown; did you mean "
            "'size_gb'? (options: name, size_gb)",
        ),
        ({"url": "a", "volumes": [{}]}, "site s: driver 'web' needs volumes[0].name"),
        (
            {"url": "a", "volumes": "b"},
            "site s: option 'volumes' of driver 'web' is 'b'; it must be a list of tables",
        ),
        (
            {"url": "a", "machine": "b"},
            "site s: option 'machine' of driver 'web' is 'b'; it must be a table",
        ),
    ],
)
def test_what_is_wrong_in_a_table_is_told_with_its_place(
    options: dict[str, Option], words: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        plugins.described(SiteSpec(name="s", driver="web", options=options), KNOWN)
    assert str(caught.value) == words


def test_options_are_explained() -> None:
    told = [(one.name, one.default) for one in plugins.options_help(Web())]
    machine = {"kind": "small", "whole": False}
    assert told == [("url", ""), ("machine", machine), ("volumes", ()), ("labels", {})]
