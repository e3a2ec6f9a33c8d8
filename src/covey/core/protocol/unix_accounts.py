"""Unix accounts: where tasks run without walls, an account is for the tasks of one owner.

Programs that run under one account can read each other's files, and stop or replace each other.
So a site whose pilots do not wall tasks in (`shared`) must not be open to several owners, nor two
such sites that use the same account. An account is known by where its commands run: by the names
of hosts, as `ssh` knows them. No name means the account of the server itself, whose directory holds
all secrets: only its own user's tasks may run there without walls.

A server that has issued no tokens has one user, and these rules do not apply.
docs/decisions/0019-secrets-of-site-jobs.md says more.
"""

import math

from covey.core.record.model import Role, SiteSpec
from covey.core.state import State

FEW = 3


def token_owners(state: State) -> dict[str, float]:
    """Who may submit bags by a token, and until when."""
    owners: dict[str, float] = {}
    for token in state.access.tokens.values():
        if token.role is not Role.VIEWER:
            until = token.expires or math.inf
            owners[token.owner] = max(until, owners.get(token.owner, 0.0))
    return owners


def people(state: State, now: float) -> tuple[str, ...]:
    """Owners who may have tasks here; empty if the server has one user."""
    owners = {owner: None for owner, until in state.access.owners.items() if until > now}
    if owners:
        owners.update((bag.spec.owner or state.settings.user, None) for bag in state.bags.values())
    return tuple(owners)


def own_users(state: State, spec: SiteSpec) -> tuple[str, ...]:
    """Whose tasks may run on the server's own machine; empty: everybody's. Without walls, every
    task there can read the server's secrets. A bag without an owner belongs to the server's
    user."""
    user = state.settings.user
    strangers = any(owner != user for owner in state.access.people)
    return (user, "") if strangers and user and not spec.shared else ()


def problem(state: State, spec: SiteSpec) -> str:
    """Why no pilots may be started at such a site; "" if they may."""
    ours, user = _accounts(spec), state.settings.user
    if spec.shared or not ours or not state.access.people:
        return ""
    neighbours = [
        site.record.spec
        for name, site in state.sites.items()
        if name != spec.name and not site.record.removed
    ]
    owners = dict.fromkeys(_owners(state, spec))
    also = ""
    for other in neighbours:
        if ours & _accounts(other) and not owners.keys() >= set(_owners(state, other)):
            owners.update(dict.fromkeys(_owners(state, other)))
            also = f" (site {other.name} uses the same account)"
    if "" in ours and user and any(owner != user for owner in owners):
        others = _named([owner for owner in owners if owner != user])
        return (
            f"its commands run here, as {user}, so tasks of {others} could read this server's "
            f"secrets{also}. Set shared = true, so that tasks run in sandboxes; or set host, for "
            "an account of their own"
        )
    if len(owners) > 1:
        return (
            f"tasks of {_named(list(owners))} would run under one account, and could read each "
            f"other's files{also}. Set shared = true, so that tasks run in sandboxes; or make a "
            "site for each owner (users), with an account for each"
        )
    return ""


def _owners(state: State, spec: SiteSpec) -> tuple[str, ...]:
    """Owners whose tasks may run at the site."""
    return spec.users or state.access.people


def _accounts(spec: SiteSpec) -> set[str]:
    accounts = spec.facts.accounts
    return {spec.host} if accounts is None else set(accounts)


def _named(owners: list[str]) -> str:
    named, rest = owners[:FEW], len(owners) - FEW
    if rest > 0:
        return f"{', '.join(named)} and {rest} more"
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
