"""Failures that are alike have one cause."""

import pytest

from covey.core.values.causes import cause_of, normalised
from covey.pilot.protocol.messages import End


def failure(outcome: str = "failed", exit_code: int = 1, **fields: object) -> End:
    return End(1, 1, 1, 1, outcome, exit_code, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ValueError: bad value 17", "ValueError: bad value N"),
        ("cannot open /scratch/u1/run-0042/in.dat", "cannot open in.dat"),
        ("segfault at 0x7fff12ab", "segfault at N"),
        ("step 3.5e-7 of 1,000,000 diverged", "step N of N diverged"),
        ("utf8 and x86_64 stay", "utfN and xN_N stay"),
        ("https://example.org/run-7/in.dat answers 404 Not Found", "…/in.dat answers N Not Found"),
        ("https://s.org/in.dat?sig=w/x answers 403 Forbidden", "…/in.dat answers N Forbidden"),
        ("a\tb   c", "a b c"),
        (
            "No such file or directory: 'a/b/missing/file.txt'",
            "No such file or directory: 'a/b/missing/file.txt'",
        ),
        ("cannot open ./data/run-7/in.dat", "cannot open ./data/run-N/in.dat"),
        ("cannot open ../in-7/x", "cannot open ../in-N/x"),
        ("python3: can't open file '/home/u/w7/fit.py'", "python3: can't open file 'fit.py'"),
        ("/usr/bin/python3.11: No module named x7", "python3.11: No module named xN"),
        ("sh: 1: perl5.36: not found", "sh: N: perl5.36: not found"),
    ],
)
def test_what_differs_from_task_to_task_is_left_out(words: str, expected: str) -> None:
    assert normalised(words) == expected


def test_a_cause_says_how_it_ended_and_what_it_said_last() -> None:
    end = failure(stderr="Traceback …\n  File x\nKeyError: 'alpha'\n\n")
    assert cause_of(end) == "exit 1: KeyError: 'alpha'"
    assert cause_of(failure(exit_code=-1, signal=11)) == "SIGSEGV"
    assert cause_of(failure("memory")) == "memory limit"
    assert cause_of(failure("timeout")) == "time limit"
    assert cause_of(failure("output", message="no file matches out-7.dat")) == (
        "output: no file matches out-N.dat"
    )
    assert cause_of(failure("setup", message="exit code 2")) == "setup: exit code N"


def test_the_cause_of_a_failed_call_is_what_it_raised() -> None:
    end = failure(message="ValueError: row 17", result='{"error":"Vm"}', stderr="a warning\n")
    assert cause_of(end) == "exit 1: ValueError: row N"
    own = failure(message="exit code 1", result='{"error":"high"}', stderr="diverged\n")
    assert cause_of(own) == "exit 1: diverged"


def test_numbers_of_tasks_make_no_difference() -> None:
    ends = [failure(stderr=f"RuntimeError: sample {i} at {i / 7} failed") for i in range(50)]
    assert len({cause_of(end) for end in ends}) == 1


def test_words_of_the_command_keep_their_digits() -> None:
    argv = ["./tools/fit2d", "sweep3.py", "{seed}", "17"]
    end = failure(exit_code=127, stderr="sh: 4: /home/u/tools/fit2d: sweep3.py 17 not found, run9")
    assert cause_of(end, argv) == "exit 127: sh: N: fit2d: sweep3.py N not found, runN"


def test_a_cause_of_a_huge_line_takes_linear_time() -> None:
    for piece in ("/", "a/", "7", "python3", "-.", "a7-"):
        assert len(normalised(piece * 1_000_000)) <= 120
