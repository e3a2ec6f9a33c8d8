"""Only what is ours is replaced in a command."""

from hypothesis import given
from hypothesis import strategies as st

from covey.pilot.messages import Body, Task
from covey.pilot.template import Template


def argv(*words: str, names: tuple[str, ...] = (), values: tuple[object, ...] = ()) -> list[str]:
    template = Template(Body(3, list(words), list(names)), {})
    return template.argv(Task(1, 3, 41, list(values)))  # type: ignore[arg-type]


def test_parameters_the_task_and_the_bag_are_replaced() -> None:
    found = argv("fit", "--x={x}", "{x}{y}", "{task}/{bag}", names=("x", "y"), values=(0.1, "b"))
    assert found == ["fit", "--x=0.1", "0.1b", "41/3"]


def test_other_braces_are_the_commands_own() -> None:
    words = ["awk", "{print $1}", "{unknown}", "{}", "${x}", "a{b"]
    assert argv(*words, names=("x",), values=(5,)) == [
        "awk", "{print $1}", "{unknown}", "{}", "$5", "a{b",
    ]  # fmt: skip


def test_a_parameter_may_be_called_task() -> None:
    assert argv("{task}", names=("task",), values=("mine",)) == ["mine"]


@given(st.text(st.characters(blacklist_characters="{}"), max_size=30))
def test_text_without_braces_is_left_alone(text: str) -> None:
    assert argv("run", text) == ["run", text]


def test_the_environment_is_the_tasks_own() -> None:
    template = Template(Body(3, ["x"], [], {"A": "1"}), {"A": "0", "B": "2"})
    found = template.environment(Task(9, 3, 41, []), "1.9")
    assert found == {
        "A": "1", "B": "2", "COVEY_BAG": "3", "COVEY_TASK": "41", "COVEY_ATTEMPT": "1.9",
    }  # fmt: skip
