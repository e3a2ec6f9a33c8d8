"""Hosts: the machines on which pilots run. A host is recognised by its machine id, not by its name.
It keeps its history when its pilots come and go.

Nobody can check the id and the name that a pilot gives for its machine. Its secret proves only its
*scope*: which site started it, or that a person did, and whose tasks it runs. So a host belongs to
a scope. A pilot of another scope that claims the same machine, or the same name, is on another host
(`node~2`): it cannot touch the history, the tags, the slots or the bans of the first host. The
price: one machine that works for two owners is two hosts.

Cloned machines have the same id. If two of them are there at the same time, the second is known by
its id and its start. A machine that was started again counts as the same machine: its old pilots
fall silent.
"""

from covey.core.protocol.tokens import ANYBODY, read_hand_job
from covey.core.record.model import JobId, PilotId, PilotRecord, PilotStatus
from covey.core.state import State
from covey.core.turn import Turn
from covey.pilot.protocol.messages import Enrol

HAND = "hand"  # the site of pilots that people start, unless they name another site
LONGEST_ID = 128
SILENT_SECONDS = 30.0  # a pilot that has been silent for less is probably still there


def proven_site(state: State, enrol: Enrol, before: PilotRecord | None) -> str:
    """The site of the pilot's job. A pilot that a person started may name any site, except one that
    the server knows."""
    job = state.jobs.get(JobId(enrol.job))
    if job is not None:
        return job.record.site
    if before is not None:
        return before.site
    by_hand = read_hand_job(enrol.job) is not None
    return HAND if by_hand and enrol.site in state.sites else enrol.site


def scope_of(enrol: Enrol, site: str, owner: str) -> str:
    """The pilot's scope, as text."""
    proven = HAND if read_hand_job(enrol.job) is not None else site
    return f"{proven}/{owner or ANYBODY}"


def machine_of(
    turn: Turn, enrol: Enrol, pilot: PilotId, before: PilotRecord | None, scope: str
) -> str:
    """The key under which the pilot's machine is known. A pilot that enrols again keeps its
    machine: else one pilot could invent any number of hosts."""
    if before is not None and before.machine.endswith(f"@{scope}"):
        return before.machine
    return identify(turn, enrol, pilot, scope)


def identify(turn: Turn, enrol: Enrol, pilot: PilotId, scope: str) -> str:
    """The key under which this machine is known. A machine without an id is known by its name."""
    machine = f"{enrol.machine[:LONGEST_ID] or '=' + enrol.host}@{scope}"
    itself = f"{enrol.machine[:LONGEST_ID]}/{enrol.boot[:LONGEST_ID]}@{scope}"
    if not enrol.machine:
        return machine
    if itself in turn.state.histories.machines:  # it was recognised as a clone before
        return itself
    for other in turn.state.pilots.values():
        record = other.record
        here = other.status is PilotStatus.ACTIVE and turn.now - other.heard < SILENT_SECONDS
        twin = record.machine == machine and record.boot != enrol.boot
        if here and twin and record.id != pilot and enrol.boot:
            return itself
    return machine


def called_name(host: str) -> str:
    """The name that a host gave itself: `node` for `node~2`. A list of hosts that names `node`
    means all hosts with this name."""
    called, _, number = host.rpartition("~")
    return called if called and number.isdecimal() else host


def name(turn: Turn, machine: str, called: str) -> str:
    """The name of this host: the name that it has, else the one that it gives itself, with a number
    if that name is taken."""
    hosts = turn.state.histories.machines
    if machine not in hosts:
        taken = set(hosts.values())
        free, number = called, 2
        while free in taken or free in turn.state.hosts:
            free, number = f"{called[:240]}~{number}", number + 1
        hosts[machine] = free
    return hosts[machine]
