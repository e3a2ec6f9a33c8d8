"""GridPolicy in words: checked on every site, shown, listed, read from bag files and keywords."""

from covey.bagfile.format.policy import PolicyOf
from covey.bagfile.format.sheet import Sheet
from covey.core.explain import catalogue
from covey.core.explain.answers import PolicyReport
from covey.core.explain.policy_check import examine
from covey.core.explain.steps import finish
from covey.core.match.policies import Compiled
from covey.core.record.model import PolicySpec
from covey.python.keywords import read_keywords
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import spec


def examined(grid: str, *sites: str) -> PolicyReport:
    grounds = Grounds(*(site(name, price=float(len(name))) for name in sites))
    return finish(examine(grounds.scheduler.state, grounds.now, PolicySpec(grid=grid), None, "ann"))


def test_one_that_makes_sense() -> None:
    report = examined('Site.Price < 5 && Site.Driver == "virtual"', "lake", "mountain")
    assert report.faults == []
    assert not [note for note in report.notes if "grid is" in note]


def test_one_that_is_an_error_on_some_site_is_a_fault() -> None:
    [fault] = examined("Site.Name + 1 > 2", "lake").faults
    assert (fault.kind, fault.name) == ("type", "GridPolicy")
    assert "on site lake" in fault.message
    [fault] = examined("Site.Price", "lake").faults
    assert "not true or false" in fault.message


def test_attributes_that_there_are_not() -> None:
    [fault] = examined("Site.Pirce < 5", "lake").faults
    assert (fault.kind, fault.near[0]) == ("unknown", "Site.Price")


def test_one_that_lets_no_site_have_pilots_is_told_of() -> None:
    report = examined("Site.Price > 100", "lake", "sea")
    assert "grid is false for each of the 2 sites, so none starts pilots for it" in report.notes
    assert report.faults == []


def test_hosts_are_not_known_then() -> None:
    report = examined("Host.Memory > 100 || Site.Price > 1", "lake")
    [fault] = report.faults
    words = "Host is undefined here: grid is evaluated for a site, before there is a pilot"
    assert (fault.kind, fault.message, fault.column) == ("scope", words, 1)


def test_it_is_shown_with_its_origin() -> None:
    policy = PolicySpec(grid="Site.Price < 2")
    view = catalogue.view(policy)
    assert {one.name: one.origins for one in view.expressions}["GridPolicy"] == ["owner"]
    assert "GridPolicy" not in {one.name for one in catalogue.view(PolicySpec()).expressions}


def test_it_is_read_wherever_policies_are() -> None:
    for given, read in (("Site.Price < 2", "Site.Price < 2"), (False, "false")):
        found = PolicyOf().read(Sheet("here"), ("policy",), {"grid": given})
        assert found == PolicySpec(grid=read)
    sheet = read_keywords({"command": "true", "policy": {"grid": "Site.Price < 2"}})
    assert sheet.tree["policy"] == {"grid": "Site.Price < 2"}


def test_what_sites_have_is_listed_with_examples() -> None:
    grounds = Grounds(site(price=2.5, wall_seconds=600.0, queued=3, ramp=3))
    grounds.submit(spec(2, owner="ann"))
    grounds.begin(grounds.jobs[0])
    listed = catalogue.attributes_of(grounds.scheduler.state, grounds.now, "ann")
    shown = {one.name: one.example for one in listed if one.role == "Site"}
    wanted = {"Driver": '"virtual"', "Price": "2.5", "MaxWall": "600", "Failover": "false"}
    wanted |= {"PilotSlots": "1", "Waiting": "1", "Running": "1", "FreePilots": "2"}
    assert {name: shown[name] for name in wanted} == wanted


def test_bags_with_it_alone_still_ask_nothing_when_tasks_go_out() -> None:
    assert Compiled(PolicySpec(grid="true")).plain
