"""Without walls an account is one owner's, and the server's own account is for its user's tasks."""

from typing import Any

from covey.core.protocol.tokens import hand_job
from covey.core.record.actions import Issued, Note, Problem
from covey.core.record.events import PilotEnrolled, TokenIssued, TokenRevoked
from covey.core.record.model import BagId, PilotId, Role, SiteFacts, SiteSpec
from covey.core.sites import site_table
from covey.pilot.protocol.messages import Answer, Enrol
from tests.unit.core.placing import Grounds, asked, local_site, site
from tests.unit.core.protocol.test_hosts import enrol, problem
from tests.unit.core.table import only, refusal, replies, spec


def issue(grounds: Grounds, owner: str, role: Role = Role.USER, expires: float = 0.0) -> int:
    event = TokenIssued(grounds.request(), f"of {owner}", role, owner, f"digest {owner}", expires)
    return only(grounds.handle(event), Issued).id


def trouble(grounds: Grounds, name: str = "lake") -> str:
    return site_table.trouble(grounds.site(name), grounds.now)


def far(name: str = "lake", **more: Any) -> SiteSpec:
    return site(name, **{"host": "login", **more})


def test_a_server_without_tokens_has_one_user() -> None:
    grounds = Grounds(far(users=("ann", "bob")), local_site(1, 1), user="root")
    for owner in ("ann", "bob"):
        grounds.submit(spec(1, owner=owner))
    assert not trouble(grounds)
    assert {job.wanted_by for job in asked(grounds.actions)} == {"ann", "bob"}


def test_a_site_without_walls_is_refused_to_several_owners() -> None:
    grounds = Grounds(far())
    issue(grounds, "ann")
    assert not trouble(grounds)
    bobs = issue(grounds, "bob")
    words = "tasks of ann and bob would run under one account, and could read each other's files"
    assert trouble(grounds).startswith(words)
    assert "shared = true" in trouble(grounds)
    notes = [one.what for one in grounds.actions if isinstance(one, Note)]
    assert notes.count("site is not used") == 1
    grounds.submit(spec(1, owner="ann"))
    assert not asked(grounds.actions)
    grounds.handle(TokenRevoked(grounds.request(), bobs))
    assert not trouble(grounds)
    grounds.later(1)
    assert asked(grounds.actions)


def test_who_only_looks_is_no_owner_and_a_token_that_expired_lets_nobody_in() -> None:
    grounds = Grounds(far())
    issue(grounds, "ann")
    issue(grounds, "bob", Role.VIEWER)
    assert not trouble(grounds)
    issue(grounds, "eve", expires=grounds.now + 10)
    assert trouble(grounds)
    grounds.later(11)
    assert not trouble(grounds)


def test_an_owner_of_a_bag_counts_who_has_no_token() -> None:
    """It came from somebody who can read the server's directory."""
    grounds = Grounds(far())
    issue(grounds, "ann")
    grounds.submit(spec(1, owner="carol"))
    assert "tasks of ann and carol" in trouble(grounds)
    assert not asked(grounds.actions)


def test_walls_or_one_user_or_an_account_for_each() -> None:
    grounds = Grounds(
        far("walled", shared=True, host="there"),
        far("one", users=("ann",), host="ann@login"),
        far("other", users=("bob",), host="bob@login"),
    )
    issue(grounds, "ann"), issue(grounds, "bob")
    assert [trouble(grounds, name) for name in ("walled", "one", "other")] == ["", "", ""]


def test_two_sites_with_one_account_are_as_one() -> None:
    grounds = Grounds(
        far("anns", users=("ann",)),
        far("bobs", users=("bob",)),
        site("hosts", facts=SiteFacts(accounts=("login", "big")), users=("ann",)),
    )
    issue(grounds, "ann"), issue(grounds, "bob")
    assert "(site bobs uses the same account)" in trouble(grounds, "anns")
    assert "(site bobs uses the same account)" in trouble(grounds, "hosts")


def test_tasks_without_walls_are_kept_from_the_account_of_walled_ones() -> None:
    grounds = Grounds(far("anns", users=("ann",)), far("all", shared=True))
    issue(grounds, "ann"), issue(grounds, "bob")
    assert "(site all uses the same account)" in trouble(grounds, "anns")
    assert not trouble(grounds, "all")


def test_such_a_site_cannot_be_added() -> None:
    grounds = Grounds()
    issue(grounds, "ann"), issue(grounds, "bob")
    refused = refusal(grounds.save(far()))
    assert refused.problem is Problem.INVALID
    assert "tasks of ann and bob would run under one account" in refused.detail
    grounds.save(far(shared=True))
    assert not trouble(grounds)


def test_the_servers_own_account_is_for_its_users_tasks() -> None:
    """Its directory holds the secrets of all."""
    grounds = Grounds(site(users=("ann",)), user="root")
    assert not trouble(grounds)
    issue(grounds, "ann")
    assert "as root, so tasks of ann could read this server's secrets" in trouble(grounds)
    own = Grounds(site(), user="ann")
    issue(own, "ann")
    assert not trouble(own)


def test_pilots_of_this_machine_run_no_strangers_tasks_once_there_are_tokens() -> None:
    grounds = Grounds(local_site(1, 4), user="root")
    grounds.submit(spec(1, owner="root"))
    [job] = grounds.jobs
    pilot = grounds.begin(job)
    issue(grounds, "ann")
    assert grounds.site("local").record.spec.users == ("root", "")
    anns = grounds.submit(spec(1, owner="ann"))
    mine = grounds.submit(spec(1, owner="root"))
    answers = [*replies(pilot.sync(4), Answer), *replies(pilot.sync(0), Answer)]
    assert {task.bag for answer in answers for task in answer.tasks} <= {mine}
    grounds.later(30)
    assert {job.wanted_by for job in asked(grounds.actions)} == {"root"}
    assert grounds.scheduler.state.bags[BagId(anns)].unsent()


def test_walled_pilots_of_this_machine_are_for_everybody() -> None:
    grounds = Grounds(local_site(1, 4, shared=True), user="root")
    issue(grounds, "ann")
    grounds.submit(spec(1, owner="ann"))
    assert asked(grounds.actions)


def test_the_rule_holds_for_a_server_that_starts() -> None:
    first = Grounds(far(), user="root")
    issue(first, "ann"), issue(first, "bob")
    again = Grounds(far(), local_site(1, 1), snapshot=first.after(), user="root")
    assert trouble(again)
    assert again.site("local").record.spec.users == ("root", "")


def test_a_pilot_that_waited_when_its_site_became_shared_is_its_owners() -> None:
    """It was started without walls."""
    grounds = Grounds(site(shared=True))
    grounds.submit(spec(1, owner="ann"))
    [job] = grounds.jobs
    pilot = grounds.begin(job, shared=False)
    assert grounds.scheduler.state.pilots[PilotId(pilot.pilot)].record.owner == "ann"


def test_a_pilot_for_everybody_without_walls_is_not_let_in() -> None:
    grounds = Grounds()
    everybody = hand_job("*", grounds.now + 600, "0")
    message = Enrol("key of the pilot", "node", 2, job=everybody)
    event = PilotEnrolled(grounds.request(), message, "word", "digest", "")
    assert problem(grounds.handle(event)) is Problem.INVALID
    assert enrol(grounds, job=everybody).pilot == 1
