"""One site and its commands, turn by turn, in a world without processes."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import Struct

from covey.core.record.actions import Note
from covey.core.record.capacity import SiteCapacity
from covey.core.record.events import (
    JobEnded,
    JobRefused,
    JobStarted,
    JobSubmitted,
    JobVanished,
    SiteAnswered,
    SiteFailed,
)
from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.ports import EngineEvent
from covey.sites.command_driver import CREDENTIALS, STAGE, Batch, CommandDriver, CommandQueue
from covey.sites.commands import Command, Output
from covey.sites.driver import Seen, SiteContext, Stand, numbered
from covey.sites.errors import Away, Refused, Unclear
from covey.sites.queue_site import MOST_CANCELLED, QueueSite
from covey.sites.shell import PUT, Shells


class World:
    """A batch system, the shell to it, its driver and a clock. `trouble` is raised by commands of a
    kind, before they do anything; `deaf` after. `slow`: seconds that they take."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.jobs: dict[str, Seen] = {}  # by handle
        self.asked: list[tuple[float, tuple[str, ...]]] = []
        self.trouble: dict[str, Exception] = {}
        self.deaf: dict[str, Exception] = {}
        self.slow: dict[str, float] = {}
        self.accounts: dict[str, Seen] | None = None
        self.last = 0
        self.staged = False
        self.missing_credential = ""
        self.free: int | None = None  # cores

    def calls(self, kind: str) -> list[tuple[str, ...]]:
        return [words[1:] for _, words in self.asked if words[0] == kind]

    # -- the shell -------------------------------------------------------------------------

    def run(self, command: Command, environment: Mapping[str, str]) -> Output:
        words = command.argv
        if words[0] == "/bin/sh":
            words = ({STAGE: "stage", PUT: "put", CREDENTIALS: "credentials"}[words[2]], *words[3:])
        self.asked.append((self.at, words))
        self.at += self.slow.get(words[0], 0.0)
        if words[0] in self.trouble:
            raise self.trouble[words[0]]
        output = getattr(self, f"do_{words[0]}")(*words[1:])
        if words[0] in self.deaf:
            raise self.deaf[words[0]]
        assert isinstance(output, Output)
        return output

    def close(self) -> None:
        pass

    def do_stage(self, *_: str) -> Output:
        return Output(0, f"/site\n{'there' if self.staged else 'missing'}\n", "")

    def do_put(self, *_: str) -> Output:
        self.staged = True
        return Output(0, "", "")

    def do_credentials(self, *_: str) -> Output:
        return Output(1 if self.missing_credential else 0, self.missing_credential, "")

    def do_submit(self, title: str, count: str) -> Output:
        self.last += 1
        for index in range(int(count)):
            handle = f"{self.last}_{index}"
            self.jobs[handle] = Seen(numbered(title, index), handle, Stand.WAITING)
        return Output(0, str(self.last), "")

    def do_list(self) -> Output:
        return Output(0, "", "")

    def do_cancel(self, *handles: str) -> Output:
        for handle in handles:
            self.stand(handle, Stand.ENDED, "cancelled")
        return Output(0, "", "")

    def do_measure(self) -> Output:
        return Output(0, str(self.free), "")

    def do_account(self, *handles: str) -> Output:
        return Output(0, " ".join(handles), "")

    def stand(self, handle: str, stand: Stand, reason: str = "") -> None:
        self.jobs[handle] = self.jobs[handle]._replace(stand=stand, reason=reason)


class Options(Struct, frozen=True):
    pass


class Plain(CommandDriver):
    """The driver of such a world."""

    name = "plain"
    options: type[Struct] = Options
    index = "0"
    environment: Mapping[str, str] = {}

    def __init__(self, world: World, most_elements: int = 1000) -> None:
        self.world = world
        self.most_elements = most_elements
        self.scripts: list[str] = []

    def submit(self, spec: SiteSpec, batch: Batch) -> Command:
        self.scripts.append(batch.script)
        return Command(("submit", batch.title, str(len(batch.names))))

    def submitted(self, spec: SiteSpec, batch: Batch, output: Output) -> tuple[str, ...]:
        return tuple(f"{output.stdout}_{index}" for index in range(len(batch.names)))

    def status(self, spec: SiteSpec, prefix: str) -> Command:
        return Command(("list",))

    def listed(self, spec: SiteSpec, prefix: str, output: Output) -> list[Seen]:
        return list(self.world.jobs.values())

    def cancel(self, spec: SiteSpec, handles: Sequence[str]) -> Command:
        return Command(("cancel", *handles))

    def capacity(self, spec: SiteSpec) -> Command | None:
        return None if self.world.free is None else Command(("measure",))

    def measured(self, spec: SiteSpec, output: Output) -> SiteCapacity:
        return SiteCapacity(free_cores=int(output.stdout))

    def accounting(self, spec: SiteSpec, handles: Sequence[str]) -> Command | None:
        return None if self.world.accounts is None else Command(("account", *handles))

    def accounted(self, spec: SiteSpec, output: Output) -> list[Seen]:
        assert self.world.accounts is not None
        return [self.world.accounts[handle] for handle in output.stdout.split()]


class Attending:
    """A site of such a world, whose thread we are."""

    def __init__(self, folder: Path, most_elements: int = 1000, **spec: object) -> None:
        self.world = World()
        self.address = "https://here"
        self.events: list[EngineEvent] = []
        self.notes: list[Note] = []
        pilot = folder / "pilot.pyz"
        pilot.write_bytes(b"the pilot")
        context = SiteContext(
            self.events.append,
            self.notes.append,
            lambda: self.world.at,
            "q",
            "master",
            lambda: (self.address, ""),
            pilot,
            Shells(),
        )
        self.driver = Plain(self.world, most_elements)
        self.spec = SiteSpec(name="there", driver="plain", **spec)  # type: ignore[arg-type]
        queue = lambda spec: CommandQueue(self.driver, spec, context, self.world)  # noqa: E731
        self.site = QueueSite(self.spec, queue, context)

    def turns(self, seconds: float = 0.0) -> None:
        """All that is to be done within so many seconds."""
        until = self.world.at + seconds
        for _ in range(100_000):
            pause = self.site.turn()
            if self.world.at + pause > until:
                break
            self.world.at += pause
        self.world.at = until

    def heard(self) -> list[EngineEvent]:
        found = list(self.events)
        self.events.clear()
        return found


def job(number: int, part: int = -1) -> JobRecord:
    id_ = f"1-{number}" if part < 0 else f"1-{number}.{part}"
    return JobRecord(id=JobId(id_), site="there", slots=1, submitted=0.0)


A, B = job(1), job(2)


@pytest.fixture
def stand(tmp_path: Path) -> Attending:
    """Watching, with nothing there; it has answered once."""
    made = Attending(tmp_path)
    made.site.watch(())
    made.turns(1)
    assert made.heard() == [SiteAnswered("there")]
    return made


def test_an_idle_site_is_left_alone(stand: Attending) -> None:
    stand.turns(10_000)
    assert len(stand.world.asked) == 1
    assert stand.site.turn() == math.inf


def test_the_list_is_asked_for_while_there_are_jobs(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(101)
    assert len(stand.world.calls("list")) == 1 + 10
    assert stand.heard() == [JobSubmitted(A.id, "1_0")]
    stand.world.stand("1_0", Stand.RUNNING)
    stand.turns(10)
    stand.world.stand("1_0", Stand.ENDED, "done")
    stand.turns(10)
    assert stand.heard() == [JobStarted(A.id), JobEnded(A.id, "done")]
    before = len(stand.world.asked)
    stand.turns(10_000)
    assert len(stand.world.asked) == before


def test_nothing_is_asked_right_after_a_submission(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(9)
    assert [words[0] for _, words in stand.world.asked] == ["list", "stage", "put", "submit"]


def test_the_directory_is_seen_to_once_in_a_while(stand: Attending) -> None:
    for number in range(20):
        stand.site.submit([job(number)])
    stand.turns(60)
    assert len(stand.world.calls("stage")) == len(stand.world.calls("put")) == 1
    stand.turns(600)
    stand.site.submit([job(30)])
    stand.turns(60)
    assert len(stand.world.calls("stage")) == 2
    assert len(stand.world.calls("put")) == 1


def test_commands_keep_their_distance(stand: Attending) -> None:
    for number in range(50):
        stand.site.submit([job(number)])
    stand.site.cancel([job(3)])
    stand.turns(60)
    times = [at for at, words in stand.world.asked if words[0] in ("submit", "list", "cancel")]
    gaps = [after - before for before, after in pairwise(times)]
    assert len(times) > 50
    assert min(gaps) >= 0.2 - 1e-9


def test_lists_are_not_put_off_by_submissions(stand: Attending) -> None:
    for number in range(200):
        stand.site.submit([job(number)])
    stand.turns(41)
    assert len(stand.world.calls("list")) >= 1 + 3


def test_alike_jobs_are_one_command(stand: Attending) -> None:
    jobs = [job(1, part) for part in range(300)]
    stand.site.submit(jobs)
    stand.turns(1)
    assert stand.world.calls("submit") == [("covey-q-1-1.0", "300")]
    handles = [event.handle for event in stand.heard() if isinstance(event, JobSubmitted)]
    assert handles == [f"1_{index}" for index in range(300)]


def test_more_jobs_than_an_array_has_are_several(tmp_path: Path) -> None:
    stand = Attending(tmp_path, most_elements=100)
    stand.site.watch(())
    stand.site.submit([job(1, part) for part in range(250)])
    stand.turns(5)
    assert stand.world.calls("submit") == [
        ("covey-q-1-1.0", "100"),
        ("covey-q-1-1.100", "100"),
        ("covey-q-1-1.200", "50"),
    ]
    names = {seen.name for seen in stand.world.jobs.values()}
    assert names == {f"covey-q-1-1.{part}" for part in range(250)}


def test_a_lost_answer_does_not_double_the_job(stand: Attending) -> None:
    stand.world.deaf["submit"] = Unclear("the connection broke")
    stand.site.submit([A])
    stand.turns(1)
    assert stand.heard() == [SiteFailed("there", "the connection broke")]
    del stand.world.deaf["submit"]
    stand.turns(20)
    assert stand.heard() == [SiteAnswered("there"), JobSubmitted(A.id, "1_0")]
    stand.site.submit([A])
    stand.turns(200)
    assert len(stand.world.calls("submit")) == 1


def test_a_lost_submission_is_told_of_after_a_while(stand: Attending) -> None:
    stand.world.trouble["submit"] = Unclear("took longer than 60 s")
    stand.site.submit([A])
    stand.turns(89)
    assert stand.heard() == [
        SiteFailed("there", "took longer than 60 s"),
        SiteAnswered("there"),
    ]
    stand.turns(30)
    assert stand.heard() == [JobVanished(A.id, "its site never listed it")]


def test_lists_that_fail_do_not_count(stand: Attending) -> None:
    stand.world.trouble["submit"] = Unclear("took longer than 60 s")
    stand.site.submit([A])
    stand.turns(1)
    stand.heard()
    stand.world.trouble["list"] = Unclear("controller is away")
    stand.turns(100_000)
    assert set(stand.heard()) == {SiteFailed("there", "controller is away")}
    del stand.world.trouble["list"]
    stand.turns(200)
    assert stand.heard() == [
        SiteAnswered("there"),
        JobVanished(A.id, "its site never listed it"),
    ]


def test_a_job_that_was_there_outlives_an_outage(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(5)
    stand.world.stand("1_0", Stand.RUNNING)
    stand.world.trouble["list"] = Unclear("controller is away")
    stand.turns(7200)
    del stand.world.trouble["list"]
    stand.turns(120)
    heard = [event for event in stand.heard() if not isinstance(event, SiteFailed)]
    assert heard == [JobSubmitted(A.id, "1_0"), SiteAnswered("there"), JobStarted(A.id)]


def test_a_site_that_does_not_answer_is_asked_more_rarely(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(5)
    stand.world.trouble["list"] = Unclear("controller is away")
    before = len(stand.world.calls("list"))
    stand.turns(3600)
    assert 50 <= len(stand.world.calls("list")) - before <= 70


def test_a_refused_job_is_surely_not_there(stand: Attending) -> None:
    stand.world.trouble["submit"] = Refused("invalid account")
    stand.site.submit([A])
    stand.turns(1)
    assert stand.heard() == [JobRefused(A.id, "invalid account")]


def test_a_site_that_is_away_gives_back_all_that_waits(stand: Attending) -> None:
    stand.world.trouble["submit"] = Away("cannot connect")
    stand.site.submit([A])
    stand.site.submit([B])
    stand.turns(1)
    assert stand.heard() == [
        SiteFailed("there", "cannot connect"),
        JobRefused(A.id, "there: cannot connect"),
        JobRefused(B.id, "there: cannot connect"),
    ]
    assert len(stand.world.calls("submit")) == 1


def test_jobs_behind_a_lost_one_are_given_back(stand: Attending) -> None:
    stand.world.trouble["submit"] = Unclear("took longer than 60 s")
    stand.site.submit([A])
    stand.site.submit([B])
    stand.turns(1)
    assert stand.heard()[1:] == [JobRefused(B.id, "there: took longer than 60 s")]


def test_missing_credentials_are_told_of_until_they_are_there(tmp_path: Path) -> None:
    stand = Attending(tmp_path, credentials=("~/proxy.pem",))
    stand.world.missing_credential = "/home/me/proxy.pem"
    stand.site.watch(())
    stand.site.submit([A])
    stand.turns(1)
    failed = SiteFailed("there", "the credential /home/me/proxy.pem is missing, or cannot be read")
    assert stand.heard() == [failed, failed, JobRefused(A.id, f"there: {failed.reason}")]
    assert not stand.world.calls("list")
    stand.world.missing_credential = ""
    stand.turns(60)
    assert stand.heard()[-1] == SiteAnswered("there")


def test_wrong_settings_are_told_before_a_command_waits_for_them(tmp_path: Path) -> None:
    stand = Attending(tmp_path, environment={"SLURM_CONF": "/etc/none.conf"})
    stand.world.missing_credential = "/etc/none.conf"
    stand.site.submit([A])
    stand.turns(1)
    words = "SLURM_CONF = '/etc/none.conf': the file is missing or cannot be read"
    assert stand.heard()[0] == SiteFailed("there", words)
    assert not stand.world.calls("list")
    assert not stand.world.calls("submit")


def test_a_driver_with_a_bug_ends_nothing(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(1)
    stand.heard()
    stand.world.trouble["list"] = IndexError("list index out of range")
    stand.turns(20)
    words = "driver plain: IndexError: list index out of range"
    assert stand.heard()[0] == SiteFailed("there", words)
    del stand.world.trouble["list"]
    stand.turns(60)
    assert stand.heard() == [SiteAnswered("there")]


def test_a_waiting_job_that_nobody_wants_is_not_submitted(stand: Attending) -> None:
    stand.site.submit([A])
    stand.site.cancel([A])
    stand.turns(1)
    assert stand.heard() == [JobEnded(A.id, "cancelled before it was submitted")]
    assert not stand.world.calls("submit")


def test_five_hundred_jobs_are_cancelled_in_bounded_batches(stand: Attending) -> None:
    jobs = [job(1, part) for part in range(500)]
    stand.site.submit(jobs)
    stand.turns(5)
    stand.site.cancel(jobs)
    stand.turns(5)
    sizes = [len(handles) for handles in stand.world.calls("cancel")]
    assert sizes == [MOST_CANCELLED] * 5
    stand.turns(10)
    assert len([one for one in stand.heard() if isinstance(one, JobEnded)]) == 500


def test_a_cancelled_job_that_stays_is_cancelled_again(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(5)
    stand.world.trouble["cancel"] = Unclear("controller is away")
    stand.site.cancel([A])
    stand.turns(5)
    del stand.world.trouble["cancel"]
    stand.turns(100)
    assert len(stand.world.calls("cancel")) == 2
    assert stand.heard()[-1] == JobEnded(A.id, "cancelled")


def test_accounts_are_asked_about_what_is_gone(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(5)
    gone = stand.world.jobs.pop("1_0")
    stand.world.accounts = {"1_0": gone._replace(stand=Stand.ENDED, reason="node failed")}
    stand.turns(40)
    assert stand.heard() == [JobSubmitted(A.id, "1_0"), JobEnded(A.id, "node failed")]
    assert stand.world.calls("account") == [("1_0",)]


def test_accounts_are_not_asked_about_what_was_cancelled(stand: Attending) -> None:
    stand.world.accounts = {}
    stand.site.submit([A])
    stand.turns(5)
    stand.site.cancel([A])
    stand.turns(1)
    stand.world.jobs.clear()
    stand.turns(40)
    assert stand.heard()[1:] == [
        JobVanished(A.id, "it was cancelled, and its site does not list it any more")
    ]
    assert not stand.world.calls("account")


def test_without_accounts_a_job_has_vanished(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(5)
    stand.world.jobs.clear()
    stand.turns(40)
    assert stand.heard()[1:] == [JobVanished(A.id, "its site does not list it any more")]


def test_a_job_that_vanished_and_was_given_up_is_cancelled_when_it_is_back(
    stand: Attending,
) -> None:
    stand.site.submit([A])
    stand.turns(5)
    there = dict(stand.world.jobs)
    stand.world.jobs.clear()
    stand.turns(40)
    stand.site.cancel([A])
    stand.turns(1000)
    assert not stand.world.calls("cancel"), "as far as anybody knows it is not there"
    assert len(stand.world.calls("list")) < 10
    stand.world.jobs.update(there)
    stand.turns(1000)
    assert stand.world.calls("cancel") == [("1_0",)]
    assert isinstance(stand.heard()[-1], JobEnded)


def test_lists_go_on_as_usual_after_a_submission_though_jobs_have_vanished(
    stand: Attending,
) -> None:
    stand.site.submit([A])
    stand.turns(5)
    stand.world.jobs.clear()
    stand.turns(100)
    stand.site.submit([B])
    before = len(stand.world.calls("list"))
    stand.turns(101)
    assert len(stand.world.calls("list")) >= before + 9


def test_slow_accounts_that_tell_nothing_hold_nobody_up(stand: Attending) -> None:
    """Each takes longer than the time between two lists, and pilots end all the time."""
    stand.world.accounts, stand.world.slow["account"] = {}, 15.0
    stand.site.submit([job(1, part) for part in range(20)])
    stand.turns(30)
    for index in range(10):
        del stand.world.jobs[f"1_{index}"]
        stand.turns(20)
        if index == 4:
            assert stand.world.calls("account")
            stand.site.cancel([job(1, 19)])
            stand.site.submit([A])
    assert stand.world.calls("cancel") == [("1_19",)]
    assert JobSubmitted(A.id, "2_0") in stand.heard()


def test_accounts_that_cannot_be_had_are_no_failure_of_the_site(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(5)
    stand.world.jobs.clear()
    stand.world.accounts = {}
    stand.world.trouble["account"] = Unclear("no database")
    stand.turns(100)
    assert stand.heard()[1:] == [JobVanished(A.id, "its site does not list it any more")]
    assert {note.what for note in stand.notes} == {"the site's accounting cannot be read"}


def test_strays_are_cancelled_with_a_note(stand: Attending) -> None:
    stand.world.do_submit("covey-q-9-9", "1")
    stand.world.do_submit("covey-other-9-9", "1")
    stand.site.watch(())
    stand.turns(5)
    assert stand.world.calls("cancel") == [("1_0",)]
    assert [note.what for note in stand.notes] == ["site jobs that are not on record"]


def test_a_changed_site_is_looked_at_anew(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(5)
    stand.site.change(SiteSpec(name="there", driver="plain", directory="/elsewhere"))
    stand.site.submit([B])
    stand.turns(5)
    assert stand.world.calls("stage")[-1][1] == "/elsewhere"


def test_the_address_is_the_one_of_now(stand: Attending) -> None:
    stand.site.submit([A])
    stand.turns(5)
    stand.address = "https://elsewhere"
    stand.site.submit([B])
    stand.turns(5)
    first, second = stand.driver.scripts
    assert "https://here" in first
    assert "https://elsewhere" in second


def test_a_closed_site_gives_back_what_it_had_not_begun(tmp_path: Path) -> None:
    stand = Attending(tmp_path)
    stand.site.submit([A])
    stand.site.close()
    stand.site.run()
    assert stand.heard() == [JobRefused(A.id, "site there was closed")]
