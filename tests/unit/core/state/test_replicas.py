"""Tasks that are offered again run; deadlines are a heap."""

import pytest

from covey.core.record.model import AttemptId, BagId, TaskNumber
from covey.core.state.replicas import Replicas, ReplicaWatch


def test_only_what_runs_is_offered() -> None:
    replicas = Replicas(overdue={1: None}, offers={2: None})
    replicas.check({1: [], 2: []})
    with pytest.raises(AssertionError, match="does not run"):
        replicas.check({1: []})
    replicas.forget(2)
    replicas.check({1: []})
    replicas.forget_all()
    replicas.check({})


def test_the_next_deadline_comes_first() -> None:
    late, soon = [(at, AttemptId(1, 1), BagId(1), TaskNumber(1)) for at in (9.0, 5.0)]
    ReplicaWatch(0.0, deadlines=[soon, late]).check()
    with pytest.raises(AssertionError):
        ReplicaWatch(0.0, deadlines=[late, soon]).check()
