"""Hosts: machines that are known by an id of their own, whatever they are called and whoever runs
on them. A host keeps its name, and with it its history, over all its pilots.

Machines that were cloned have the same id. Two that are there at the same time are told apart by
when they were started: the second one then goes by its start, too. A machine that was started
again is taken for the same one, since its old pilots fall silent.
"""

from covey.core.model import PilotId, PilotStatus
from covey.core.turn import Turn
from covey.pilot.messages import Enrol

SILENT_SECONDS = 30.0  # a pilot that was heard of since then is probably still there


def identify(turn: Turn, enrol: Enrol, pilot: PilotId) -> str:
    """By what this machine is known here; nothing if it does not say."""
    if not enrol.machine:
        return ""
    itself = f"{enrol.machine}/{enrol.boot}"[:128]
    if itself in turn.state.machines:  # it has been found to be a clone before
        return itself
    for other in turn.state.pilots.values():
        record = other.record
        here = other.status is PilotStatus.ACTIVE and turn.now - other.heard < SILENT_SECONDS
        twin = record.machine == enrol.machine and record.boot != enrol.boot
        if here and twin and record.id != pilot and enrol.boot:
            return itself
    return enrol.machine


def name(turn: Turn, machine: str, called: str) -> str:
    """The name of this host: the one it has, else what it calls itself if nobody else does."""
    hosts = turn.state.machines
    if not machine:
        return called
    if machine not in hosts:
        taken = set(hosts.values())
        found, number = called, 2
        while found in taken:
            found, number = f"{called[:240]}~{number}", number + 1
        hosts[machine] = found
    return hosts[machine]
