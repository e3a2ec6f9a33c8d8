"""Tokens are issued and revoked durably, and found by digest only."""

import pytest

from covey.core.protocol import tokens
from covey.core.protocol.tokens import digest, find
from covey.core.record.actions import Action, Done, Issued, Problem, Refuse, SaveToken
from covey.core.record.events import TokenIssued, TokenRevoked
from covey.core.record.model import Role, Settings, Snapshot, TokenRecord
from covey.core.scheduler import Scheduler
from tests.unit.core.table import Table, only, replies, writes


def issue(table: Table, token: str, *, name: str = "n", expires: float = 0.0) -> list[Action]:
    event = TokenIssued(table.request(), name, Role.USER, "ann", digest(token), expires)
    return table.handle(event)


def test_a_token_counts_from_its_commit_in_the_record_on() -> None:
    table = Table()
    table.durable = False
    actions = issue(table, "t")
    assert replies(actions, Issued) == []
    (saved,) = writes(actions, SaveToken)
    assert (saved.token.id, saved.token.owner, saved.token.digest) == (1, "ann", digest("t"))
    assert only(table.commit(), Issued).id == 1


def test_found_by_digest_until_it_ends() -> None:
    table = Table()
    state, now = table.scheduler.state, table.now
    issue(table, "t", expires=now + 10)
    issue(table, "u")
    found = find(state, "t", now + 9)
    assert found is not None
    assert found.id == 1
    assert find(state, "t", now + 10) is None
    assert find(state, digest("t"), now) is None
    assert only(table.handle(TokenRevoked(table.request(), 2)), Done).count == 1
    assert find(state, "u", now) is None
    (saved,) = writes(table.actions, SaveToken)[2:]
    assert (saved.token.id, saved.token.revoked) == (2, table.now)
    assert only(table.handle(TokenRevoked(table.request(), 2)), Done).count == 0
    (refusal,) = [
        a for a in table.handle(TokenRevoked(table.request(), 9)) if isinstance(a, Refuse)
    ]
    assert refusal.problem is Problem.NOT_FOUND
    assert "no token 9" in refusal.detail


def test_what_makes_no_sense_is_refused() -> None:
    table = Table()
    for wrong in (
        issue(table, "t", name=""),
        issue(table, "t", name="a\nb"),
        issue(table, "t", name="x" * 201),
        issue(table, "t", expires=table.now),
        issue(table, "t", expires=1e30),
    ):
        (refusal,) = wrong
        assert isinstance(refusal, Refuse)
    assert table.scheduler.state.access.tokens == {}
    assert table.scheduler.state.counters.next_token == 1


def test_one_owner_has_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_OF_AN_OWNER", 3)
    monkeypatch.setattr(tokens, "MOST_TOKENS", 8)
    monkeypatch.setattr(tokens, "RESERVED_TOKENS", 3)
    table = Table()

    def refused(token: str, owner: str, by_admin: bool = False, expires: float = 0.0) -> str:
        event = TokenIssued(
            table.request(), "n", Role.USER, owner, digest(token), expires, by_admin
        )
        return "".join(a.detail for a in table.handle(event) if isinstance(a, Refuse))

    assert not refused("a0", "ann", expires=table.now + 5)
    assert not any(refused(f"a{number}", "ann") for number in (1, 2))
    assert refused("a3", "ann").startswith(
        "ann has 3 tokens, and no owner may have more: revoke some"
    )
    assert not any(refused(f"b{number}", "bob") for number in (1, 2))
    assert "there are 5 tokens" in refused("b3", "bob")
    table.now += 10
    assert not refused("a4", "ann"), "one of hers has expired"
    assert not any(refused(f"c{number}", "ann", by_admin=True) for number in (1, 2, 3))
    assert refused("c4", "ann", by_admin=True)


def test_they_are_there_after_a_restart() -> None:
    kept = TokenRecord(id=4, name="n", role=Role.VIEWER, owner="o", digest="d", created=1.0)
    snapshot = Snapshot(
        epoch=2, bags=(), pilots=(), jobs=(), next_bag=1, next_pilot=1, keys={},
        tokens=(kept,), next_token=6,
    )  # fmt: skip
    scheduler, _ = Scheduler.recover(snapshot, Settings(), 10.0)
    assert scheduler.state.access.tokens == {"d": kept}
    assert scheduler.state.counters.next_token == 6
