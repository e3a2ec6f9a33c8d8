"""What somebody may have meant who wrote an unknown name."""

from covey.core.values.suggestions import LONGEST, did_you_mean, nearest

KEYS = ("memory", "Time", "cores")


def test_the_nearest_name_is_suggested_whatever_its_case() -> None:
    assert nearest("memroy", KEYS) == "memory"
    assert nearest("time", KEYS) == "Time"
    assert nearest("something else", KEYS) == ""


def test_what_others_call_a_name_is_known() -> None:
    assert nearest("cpus", KEYS, {"cpus": "cores"}) == "cores"


def test_very_long_names_are_not_compared() -> None:
    assert nearest("memory" + "y" * LONGEST, KEYS) == ""


def test_a_question_or_what_is_told_otherwise() -> None:
    assert did_you_mean("memroy", KEYS) == "; did you mean 'memory'?"
    assert did_you_mean("xyz", KEYS, "; see the help") == "; see the help"
