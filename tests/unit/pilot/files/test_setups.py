"""A setup is run once, and counts only when it went well."""

import os
import time
from pathlib import Path

from covey.pilot.files.setups import DONE, ELSEWHERE, KEEP_SECONDS, RUN, Setups, name_of, problem_of
from covey.pilot.protocol.messages import Body, Input
from covey.pilot.slots.orders import Link

BODY = Body(3, ["x"], [], {"A": "1"}, setup="make", setup_seconds=5.0)


def test_one_runs_it_and_the_others_wait(tmp_path: Path) -> None:
    first, second = Setups(str(tmp_path), "n/1"), Setups(str(tmp_path), "n/1")
    assert first.begin(BODY) == RUN
    assert second.begin(BODY) == ELSEWHERE
    first.over(BODY, good=True)
    assert second.begin(BODY) == DONE
    assert Setups(str(tmp_path), "n/2").begin(BODY) == RUN


def test_a_failed_one_begins_anew(tmp_path: Path) -> None:
    setups = Setups(str(tmp_path), "n")
    assert setups.begin(BODY) == RUN
    tree = Path(setups.tree(BODY))
    (tree / "half").write_text("")
    setups.over(BODY, good=False)
    assert setups.begin(BODY) == RUN
    assert list(tree.iterdir()) == []


def test_the_lock_goes_with_its_pilot(tmp_path: Path) -> None:
    first, second = Setups(str(tmp_path), "n"), Setups(str(tmp_path), "n")
    assert first.begin(BODY) == RUN
    first.close()
    assert second.begin(BODY) == RUN


def test_what_it_runs(tmp_path: Path) -> None:
    setups = Setups(str(tmp_path), "n")
    links = [Link("/cache/a", "a")]
    plan = setups.plan(BODY, 9, {"A": "0", "PATH": "/bin"}, links)
    order = setups.order(BODY, 9)
    tree = setups.tree(BODY)
    assert plan.env == {"A": "1", "PATH": "/bin", "COVEY_BAG": "3", "COVEY_SETUP": tree}
    assert (plan.number, plan.chdir, plan.makes, plan.links) == (9, tree, tree, links)
    assert (order.key, order.plan, order.limit_seconds) == ("setup:3.1", 9, 5.0)
    assert order.argv == ["/bin/sh", "-e", "-c", "make"]
    assert setups.tree(BODY._replace(setup="")) == ""


def test_it_is_another_one_when_it_could_see_something_else() -> None:
    names = {
        name_of(body)
        for body in (
            BODY,
            BODY._replace(bag=4),
            BODY._replace(owner="bob"),
            BODY._replace(env={}),
            BODY._replace(setup="make all"),
            BODY._replace(inputs=[Input("a", "ab" * 32)]),
        )
    }
    assert len(names) == 6


def test_what_nobody_used_for_a_day_is_removed(tmp_path: Path) -> None:
    setups = Setups(str(tmp_path), "n")
    other = BODY._replace(bag=4)
    for body in (BODY, other):
        setups.begin(body)
        setups.over(body, good=True)
    for body in (BODY, other):
        long_ago = time.time() - KEEP_SECONDS - 10
        os.utime(Path(setups.tree(body)).parent / "done", (long_ago, long_ago))
    Setups(str(tmp_path), "n").touch(other)
    setups.sweep()
    assert not Path(setups.tree(BODY)).exists()
    assert Path(setups.tree(other)).exists()
    assert setups.begin(BODY) == RUN


def test_what_is_said_of_a_failure() -> None:
    assert problem_of("ok", "", b"warning\n") is None
    said = b"1\n2\n3\n4\n5\n6\n"
    words = problem_of("failed", "exit code 2", said)
    assert words == "the bag's setup failed on this host: exit code 2: 2 | 3 | 4 | 5 | 6"
    assert problem_of("timeout", "over its limit", b"") is not None
