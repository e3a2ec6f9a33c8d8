"""Names in braces are filled in; other braces mean themselves."""

from covey.core.values.placeholders import filler, names_of


def test_names_are_found_once_in_their_order() -> None:
    assert names_of("{b}/{a}-{b} {1} {} {{c}}") == ["b", "a", "c"]


def test_parameters_task_and_bag_are_filled_in() -> None:
    fill = filler("{x}-{y}-{task}-{bag}-{other}-{}", ["x", "y"])
    assert fill([1.5, "{x}"], 7, 3) == "1.5-{x}-7-3-{other}-{}"


def test_a_parameter_may_be_called_task() -> None:
    assert filler("{task}", ["task"])(["mine"], 7, 3) == "mine"
