"""Hosts: the machines on which pilots run. A host is recognised by its machine id, not by its name.
It keeps its history when its pilots come and go.

What a pilot says of its machine (id and name) is a claim that nobody can check. What its secret
proves is its *scope*: the site that started it, or that a person did, and whose tasks it runs. So
a host belongs to a scope. A pilot of another scope that claims the same machine, or the same name,
is on another host (`node~2`): it cannot touch the history, the tags, the slots or the bans of the
first. The price: one machine that works for two owners is two hosts.

Machines that were cloned have the same id. Two that are there at the same time are told apart by
when they were started: the second one then goes by its start, too. A machine that was started
again is taken for the same one, since its old pilots fall silent.
"""

from covey.core.protocol.tokens import ANYBODY, read_hand_job
from covey.core.record.model import JobId, PilotId, PilotRecord, PilotStatus
from covey.core.state import State
from covey.core.turn import Turn
from covey.pilot.protocol.messages import Enrol

HAND = "hand"  # the site of pilots that people start, unless these say another
LONGEST_ID = 128
SILENT_SECONDS = 30.0  # a pilot that was heard of since then is probably still there


def proven_site(state: State, enrol: Enrol, before: PilotRecord | None) -> str:
    """The site of the pilot's job. A pilot that a person started may name its place as it likes,
    but not as one of the sites that the server knows."""
    job = state.jobs.get(JobId(enrol.job))
    if job is not None:
        return job.record.site
    if before is not None:
        return before.site
    by_hand = read_hand_job(enrol.job) is not None
    return HAND if by_hand and enrol.site in state.sites else enrol.site


def scope_of(enrol: Enrol, site: str, owner: str) -> str:
    """What the secret proves, as text."""
    proven = HAND if read_hand_job(enrol.job) is not None else site
    return f"{proven}/{owner or ANYBODY}"


def machine_of(
    turn: Turn, enrol: Enrol, pilot: PilotId, before: PilotRecord | None, scope: str
) -> str:
    """By what the pilot's machine is known here. A pilot that enrols again is where it was: else
    one pilot could make up as many hosts as it likes."""
    if before is not None and before.machine.endswith(f"@{scope}"):
        return before.machine
    return identify(turn, enrol, pilot, scope)


def identify(turn: Turn, enrol: Enrol, pilot: PilotId, scope: str) -> str:
    """By what this machine is known here. One without an id of its own is known by its name."""
    machine = f"{enrol.machine[:LONGEST_ID] or '=' + enrol.host}@{scope}"
    itself = f"{enrol.machine[:LONGEST_ID]}/{enrol.boot[:LONGEST_ID]}@{scope}"
    if not enrol.machine:
        return machine
    if itself in turn.state.histories.machines:  # it has been found to be a clone before
        return itself
    for other in turn.state.pilots.values():
        record = other.record
        here = other.status is PilotStatus.ACTIVE and turn.now - other.heard < SILENT_SECONDS
        twin = record.machine == machine and record.boot != enrol.boot
        if here and twin and record.id != pilot and enrol.boot:
            return itself
    return machine


def called_name(host: str) -> str:
    """What a host calls itself, as far as its name here tells: `node` of `node~2`. A list of hosts
    that names `node` means all hosts that are called so."""
    called, _, number = host.rpartition("~")
    return called if called and number.isdecimal() else host


def name(turn: Turn, machine: str, called: str) -> str:
    """The name of this host: the one it has, else what it calls itself if nobody else does."""
    hosts = turn.state.histories.machines
    if machine not in hosts:
        taken = set(hosts.values())
        found, number = called, 2
        while found in taken or found in turn.state.hosts:
            found, number = f"{called[:240]}~{number}", number + 1
        hosts[machine] = found
    return hosts[machine]
