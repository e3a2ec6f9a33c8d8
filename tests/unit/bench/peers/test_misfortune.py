"""The schedule of misfortune is the same every time, and its bound is one."""

from pathlib import Path

from bench.peers.misfortune import Attempt, lost, read_attempts, schedule, wasted


def test_the_same_seed_brings_the_same_misfortune() -> None:
    assert schedule() == schedule()
    assert schedule(seed=1) != schedule(seed=2)


def test_the_tasks_are_as_long_as_was_asked() -> None:
    durations = schedule(seconds=(0.5, 2.0)).durations
    assert len(durations) == 600
    assert 0.5 <= min(durations) < max(durations) <= 2.0


def test_only_healthy_workers_are_killed() -> None:
    plan = schedule(workers=16, black=2, slow=3)
    assert {kill.worker for kill in plan.kills} == set(range(11))
    assert list(plan.kills) == sorted(plan.kills, key=lambda kill: kill.seconds)


def test_the_bound_counts_slow_workers_for_a_fifth_and_black_holes_for_nothing() -> None:
    plan = schedule(workers=10, black=3, slow=5)
    assert plan.bound == plan.work / 3


def test_the_bound_is_never_less_than_the_longest_task() -> None:
    plan = schedule(tasks=2, workers=10, black=0, slow=0)
    assert plan.bound == max(plan.durations)


def test_all_attempts_are_waste_but_the_first_that_ended() -> None:
    first = Attempt(task=1, began=0.0, seen=2.0, ended=True)
    killed = Attempt(task=1, began=0.0, seen=1.0, ended=False)
    second = Attempt(task=1, began=0.5, seen=3.5, ended=True)
    assert wasted([second, killed, first]) == 1.0 + 3.0


def test_a_task_without_an_end_is_lost() -> None:
    ended = Attempt(task=1, began=0.0, seen=2.0, ended=True)
    killed = Attempt(task=2, began=0.0, seen=1.0, ended=False)
    assert lost([ended, killed], tasks=3) == 2


def test_attempts_are_read_from_what_they_wrote(tmp_path: Path) -> None:
    (tmp_path / "7-100").write_text("5.0\nend\n")
    (tmp_path / "8-101").write_text("6.0\n")
    (tmp_path / "9-102").write_text("")
    found = sorted(read_attempts(tmp_path), key=lambda attempt: attempt.task)
    assert [(one.task, one.began, one.ended) for one in found] == [(7, 5.0, True), (8, 6.0, False)]
