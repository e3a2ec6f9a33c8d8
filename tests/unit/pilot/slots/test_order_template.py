"""Only what is ours is replaced in a command, and an order has only what is its own."""

from hypothesis import given
from hypothesis import strategies as st

from covey.pilot.protocol.messages import Body, Need, Task
from covey.pilot.slots.capacity import Ask, Grant
from covey.pilot.slots.order_template import Template
from covey.pilot.slots.orders import Link


def argv(*words: str, names: tuple[str, ...] = (), values: tuple[object, ...] = ()) -> list[str]:
    template = Template(Body(3, list(words), list(names)), {})
    return template.order("1.1", Task(1, 3, 41, list(values))).argv  # type: ignore[arg-type]


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


def test_what_all_tasks_share_is_in_the_plan() -> None:
    body = Body(
        3, ["x"], [], {"A": "1"}, "/work", [Need(2, 500)], outputs=["*.csv"], ok_codes=[0, 3]
    )
    template = Template(body, {"A": "0", "B": "2"}, 7, [Link("/c/f", "f")], "/cache/setup")
    assert template.plan.env == {
        "A": "1", "B": "2", "COVEY_BAG": "3", "COVEY_CORES": "2", "OMP_NUM_THREADS": "2",
        "COVEY_MEMORY_MB": "500", "COVEY_SETUP": "/cache/setup",
    }  # fmt: skip
    assert (template.plan.number, template.plan.chdir) == (7, "/work")
    assert (template.plan.links, template.plan.outputs) == ([Link("/c/f", "f")], ["*.csv"])
    assert (template.plan.ok_codes, template.plan.log_bytes) == ([0, 3], 65536)
    order = template.order("1.9", Task(9, 3, 41, []))
    assert order.env == {"COVEY_TASK": "41", "COVEY_ATTEMPT": "1.9"}
    assert (order.plan, order.memory_mb, order.outputs, order.links) == (7, 500, [], [])


def test_classes_differ_only_where_they_do() -> None:
    body = Body(3, ["x"], [], {"OMP_NUM_THREADS": "1"}, "", [Need(), Need(4, 100, 50, 2, 9.0)])
    template = Template(body, {})
    assert "COVEY_CORES" not in template.plan.env
    assert template.plan.env["OMP_NUM_THREADS"] == "1"
    small, large = Task(1, 3, 0, []), Task(2, 3, 1, [], 1)
    assert template.order("a", small).env["COVEY_CORES"] == "1"
    assert "COVEY_MEMORY_MB" not in template.order("a", small).env
    order = template.order("b", large, Grant(["0", "3"], [5]))
    assert order.env["COVEY_CORES"] == "4"
    assert order.env["COVEY_MEMORY_MB"] == "100"
    assert order.env["CUDA_VISIBLE_DEVICES"] == order.env["ROCR_VISIBLE_DEVICES"] == "0,3"
    assert (order.limit_seconds, order.memory_mb, order.cores) == (9.0, 100, [5])
    assert template.ask(large) == Ask(4, 100, 50, 2, False)


def test_a_tasks_own_limits_take_the_place_of_its_classs() -> None:
    template = Template(Body(3, ["x"], [], needs=[Need(1, 100, 0, 0, 5.0)]), {})
    grown = Task(1, 3, 0, [], 0, 150, 15.0)
    order = template.order("a", grown)
    assert (order.memory_mb, order.limit_seconds) == (150, 15.0)
    assert order.env["COVEY_MEMORY_MB"] == "150"
    assert template.ask(grown).memory_mb == 150


def test_parameters_are_exported_when_asked() -> None:
    body = Body(3, ["x"], ["alpha", "n"], export=True)
    env = Template(body, {}).order("a", Task(1, 3, 0, [0.5, 3])).env
    assert (env["alpha"], env["n"]) == ("0.5", "3")


def test_outputs_of_a_tasks_own() -> None:
    body = Body(3, ["x"], ["n"], outputs=["log", "out-{n}.csv"], optional_outputs=["d-{n}/*", "e"])
    template = Template(body, {})
    assert template.plan.outputs == ["log"]
    assert template.plan.optional_outputs == ["d-*/*", "e"]
    assert template.order("a", Task(1, 3, 0, ["a*b"])).outputs == ["out-a[*]b.csv"]
