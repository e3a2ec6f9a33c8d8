"""many-bags: each kind of bag has its own bound."""

from bench.many_bags import KINDS, verdicts


def test_the_best_run_of_each_kind_counts() -> None:
    rows = [{"kind": kind.name, "share": share} for kind in KINDS for share in (0.1, 0.85)]
    found = [verdict.met for verdict in verdicts(rows)]
    assert found == [kind.bound <= 0.85 for kind in KINDS]
    assert verdicts([{"run": 1, "note": "BROKEN"}])[0].met is None
