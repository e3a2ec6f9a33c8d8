"""What all drivers promise, whatever a site says and whatever its options are."""

import contextlib
import shlex
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.errors import BadConfig
from covey.core.record.model import Option, SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import WRITE, Output, after_writing
from covey.sites.driver import Seen, Shape, Stand, numbered, runs
from covey.sites.drivers import common
from covey.sites.drivers.pbs import OURS
from covey.sites.errors import Refused, Unclear
from tests.unit.sites.recordings import (
    BATCH_SYSTEMS,
    DATA,
    PREFIX,
    SCRIPT,
    batch,
    site,
)

each_batch_system = pytest.mark.parametrize("driver", BATCH_SYSTEMS, ids=lambda driver: driver.name)

RECORDINGS = sorted(
    path.read_text("utf-8")
    for path in DATA.rglob("*")
    if path.suffix in (".txt", ".err", ".xml", ".json")
)


def torn(text: str, cuts: list[int]) -> str:
    """The text without the pieces between the first two places, the next two, and so on."""
    places = sorted(cut % (len(text) + 1) for cut in cuts)
    kept, last = "", 0
    for start, stop in zip(places[::2], places[1::2], strict=False):
        kept += text[last:start]
        last = stop
    return kept + text[last:]


# Anything, and what sites do say with pieces missing: that comes closest to being believed.
garbage = st.one_of(
    st.text(),
    st.builds(torn, st.sampled_from(RECORDINGS), st.lists(st.integers(0, 10**6), max_size=6)),
    st.builds(
        str.replace, st.sampled_from(RECORDINGS), st.sampled_from("0123456789 :[]\n"), st.text()
    ),
)
statuses = st.one_of(st.just(0), st.integers(-15, 255))
outputs = st.builds(Output, statuses, garbage, st.one_of(st.just(""), garbage))


@each_batch_system
@given(output=outputs)
def test_whatever_a_site_says_is_read_or_unclear(driver: CommandDriver, output: Output) -> None:
    spec = site(driver.name)
    reads: list[Callable[[], list[Seen]]] = [
        lambda: driver.listed(spec, PREFIX, output),
        lambda: driver.accounted(spec, output),
    ]
    for read in reads:
        with contextlib.suppress(Unclear):
            for seen in read():
                assert type(seen.stand) is Stand
                assert seen.handle
    try:
        handles = driver.submitted(spec, batch(3), output)
    except (Refused, Unclear):
        return
    assert len(set(handles)) == 3


@each_batch_system
@given(output=outputs)
def test_only_ours_are_listed(driver: CommandDriver, output: Output) -> None:
    try:
        found = driver.listed(site(driver.name), PREFIX, output)
    except Unclear:
        return
    assert all(seen.name.startswith(PREFIX) for seen in found)


@each_batch_system
def test_a_failed_command_is_never_a_list(driver: CommandDriver) -> None:
    for status in (1, 127, 255, -9):
        with pytest.raises(Unclear):
            driver.listed(site(driver.name), PREFIX, Output(status, "", "something went wrong\n"))


@each_batch_system
def test_a_command_that_is_not_there_has_submitted_nothing(driver: CommandDriver) -> None:
    with pytest.raises(Refused, match="not found"):
        driver.submitted(site(driver.name), batch(), Output(127, "", "sh: qsub: not found\n"))


letters = st.characters(codec="utf-8")
odd = st.text(
    st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=20
).filter(lambda text: not text.startswith("-"))
QUEUES = {
    "gridengine": "queue",
    "htcondor": "requirements",
    "lsf": "queue",
    "pbs": "queue",
    "slurm": "partition",
}


@each_batch_system
@given(value=odd, extra=st.lists(odd, max_size=3))
def test_an_odd_option_is_one_argument(driver: CommandDriver, value: str, extra: list[str]) -> None:
    options: dict[str, Option] = {QUEUES[driver.name]: value, "extra": tuple(extra)}
    spec = site(driver.name, **options)
    command = driver.submit(spec, batch(2))
    plain = driver.submit(site(driver.name, **{QUEUES[driver.name]: "q"}), batch(2))
    assert len(command.argv) == len(plain.argv) + len(extra)
    assert all(word in command.argv for word in extra)
    if driver.name == "htcondor":
        assert f"requirements = {value}" in command.argv
    else:
        assert any(word.endswith(value) for word in command.argv)


@each_batch_system
@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b", "\x1b[2J", "a\u2028b"])
def test_line_breaks_are_refused(driver: CommandDriver, text: str) -> None:
    each: list[dict[str, Option]] = [{QUEUES[driver.name]: text}, {"extra": ("ok", text)}]
    for options in each:
        with pytest.raises(BadConfig, match="line break"):
            driver.submit(site(driver.name, **options), batch())


@each_batch_system
def test_a_value_is_no_option(driver: CommandDriver) -> None:
    with pytest.raises(BadConfig, match="must not begin with a dash"):
        driver.submit(site(driver.name, **{QUEUES[driver.name]: "--uid=0"}), batch())


@each_batch_system
@given(script=st.text(letters))
def test_a_script_is_handed_on_untouched(driver: CommandDriver, script: str) -> None:
    """By standard input: arguments are for all to see."""
    command = driver.submit(site(driver.name), batch(2)._replace(script=script))
    assert command.stdin == script.encode()
    other = "x" * len(command.stdin)
    plain = driver.submit(site(driver.name), batch(2)._replace(script=other))
    assert command.argv == plain.argv


def test_a_script_that_arrives_in_part_is_not_submitted(tmp_path: Path) -> None:
    command = after_writing(str(tmp_path / "script"), SCRIPT, ("echo", "submitted"))
    whole = subprocess.run(command.argv, input=command.stdin, capture_output=True)
    assert (whole.returncode, whole.stdout) == (0, b"submitted\n")
    part = subprocess.run(command.argv, input=command.stdin[:-1], capture_output=True)
    assert (part.returncode, part.stdout) == (126, b"")


@each_batch_system
def test_no_word_is_read_by_a_shell(driver: CommandDriver) -> None:
    """Where a shell is needed, its line is always the same."""
    spec = site(driver.name)
    commands = [
        driver.submit(spec, batch(min(3, driver.most_elements))),
        driver.status(spec, PREFIX),
        driver.cancel(spec, ["1", "2"]),
        driver.accounting(spec, ["1", "2"]),
    ]
    for command in commands:
        if command is not None and command.argv[0] == "/bin/sh":
            assert command.argv[1:] == ("-c", OURS) or command.argv[1:4] == ("-c", WRITE, "sh")
        elif command is not None:
            assert "sh" not in command.argv[0].split("/")


@each_batch_system
def test_many_are_cancelled_at_once(driver: CommandDriver) -> None:
    """500 pilots, of five arrays: no argument is longer than the kernel allows, nor are all of
    them together longer than it allows one, as SSH makes them one."""
    spec = site(driver.name)
    shown = {"gridengine": "{}.{}", "lsf": "{}[{}]", "pbs": "{}[{}].s", "slurm": "{}_{}"}
    form = shown.get(driver.name, "{}.{}")
    handles = [form.format(job, index) for job in range(5) for index in range(1, 200, 2)]
    assert len(shlex.join(driver.cancel(spec, handles).argv)) < 2**17
    together = driver.cancel(spec, [form.format(7, index) for index in range(1, 101)])
    assert len(together.argv) <= 4 or driver.name == "htcondor"


@each_batch_system
@pytest.mark.parametrize(
    ("environment", "index"),
    [({"SLURM_ARRAY_TASK_ID": "4", "SGE_TASK_ID": "5", "PBS_ARRAY_INDEX": "4",
       "LSB_JOBINDEX": "5", "COVEY_INDEX": "4"}, "4"),
     ({"SGE_TASK_ID": "1", "LSB_JOBINDEX": "1"}, "0")],
    ids=["of an array", "alone"],
)  # fmt: skip
def test_the_shell_finds_its_index(
    driver: CommandDriver, environment: dict[str, str], index: str
) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f"echo {driver.index}"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ran.stdout == f"{index}\n"


@each_batch_system
def test_names_that_a_list_could_not_tell_are_our_mistake(driver: CommandDriver) -> None:
    strangers = Batch("covey-q7-1-4", ("covey-q7-1-4", "covey-q7-1-6"), Shape(1), SCRIPT, "/d")
    with pytest.raises(ValueError, match="do not follow"):
        driver.submit(SiteSpec(name="there", driver=driver.name), strangers)


def test_names_are_numbered() -> None:
    assert [numbered("covey-q7-1-9", index) for index in range(3)] == [
        *("covey-q7-1-9", "covey-q7-1-10", "covey-q7-1-11"),
    ]
    assert numbered("nothing", 2) == "nothing2"
    assert numbered("007", 0) == "007"


@given(st.lists(st.integers(0, 30)), st.integers(1, 5))
def test_runs_are_batches(numbers: list[int], most: int) -> None:
    names = [f"covey-q7-1-{number}" for number in numbers]
    found = runs(names, most)
    assert [name for one in found for name in one] == names
    for one in found:
        assert 1 <= len(one) <= most
        assert one == tuple(numbered(one[0], index) for index in range(len(one)))


@given(st.sets(st.integers(0, 200)))
def test_ranges_hold_what_they_were_made_of(numbers: set[int]) -> None:
    found = common.ranges(numbers)
    assert {n for first, last in found for n in range(first, last + 1)} == numbers
    assert all(after[0] > before[1] + 1 for before, after in pairwise(found))


def test_times() -> None:
    assert [common.minutes(seconds) for seconds in (0.5, 60, 60.5)] == [1, 1, 2]
    assert [common.clock(seconds) for seconds in (0.5, 3599.5, 90061)] == [
        *("00:00:01", "01:00:00", "25:01:01"),
    ]


def test_what_it_said_is_one_line() -> None:
    assert Output(1, "out\n", "\nfirst\nlast \n\n").words == "first; last"
    assert Output(3, "", "").words == "exit status 3"
