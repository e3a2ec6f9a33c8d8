"""`covey site` and `covey explain site`: what people see, write and are told to do."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from covey.cli.machines import site_trial
from covey.cli.shared.site_words import changed, from_file, written
from covey.config_sites import read, table_of
from covey.core.errors import NotFound
from covey.core.explain.answers import (
    BagShare,
    BrokerAnswer,
    Limit,
    Reason,
    ServiceAnswer,
    SiteAnswer,
    SiteShare,
    Wanting,
    WeightsAt,
)
from covey.core.record.model import SiteFacts, SiteSpec
from covey.core.sites.measures import SiteMeasures
from covey.frontend import bag_places
from covey.wire import SiteExplanation, SiteJobView, SiteView, TrialStep, TrialView
from tests.unit.cli.source import FakeSource, Look

JOB = SiteJobView(
    id="3-1.0",
    site="lab",
    handle="77_0",
    owner="ann",
    slots=4,
    state="preempted",
    submitted=1000.0,
    requeued=1100.0,
    requeues=1,
    started=1160.0,
    enrolled=1163.0,
    goodbye=0.0,
    ended=1463.0,
    reason="PREEMPTED",
    pilot=9,
    host="node3",
    log="/covey/log/77_0.out",
)


class Fake(FakeSource):
    """Knows sites, and answers trials from a list."""

    def __init__(self) -> None:
        super().__init__()
        self.held = [_view("lab"), _view("far", trouble="no route", rests_until=9e9)]
        self.trials: list[TrialView] = []
        self.now = 1000.0

    def sites(self) -> list[SiteView]:
        return self.held

    def site(self, name: str) -> SiteView:
        found = [one for one in self.held if one.name == name]
        if not found:
            raise NotFound(f"there is no site {name}")
        return found[0]

    def site_jobs(self, name: str, limit: int = 100) -> list[SiteJobView]:
        self.told.append(("jobs", name, limit))
        return [JOB] if name == "lab" else []

    def save_site(self, name: str, table: dict[str, Any]) -> int:
        self.told.append(("save", name, table))
        self.held = [one for one in self.held if one.name != name]
        self.held.append(_view(name, spec=read(name, table)))
        return 1

    def remove_site(self, name: str) -> int:
        self.told.append(("remove", name))
        return 1

    def set_site(self, name: str, word: Any) -> int:
        self.told.append((word, name))
        return 1

    def explain_site(self, name: str) -> SiteExplanation:
        answer = SiteAnswer(
            summary="0 pilots with 0 slots there: it is paused",
            reasons=[Reason(kind="paused", text="it is paused")],
            limits=[
                Limit(key="queued", used=2, most=10, left=8),
                Limit(key="all_memory", used=1024, most=4096, left=3),
                Limit(key="running", used=2, most=0, left=10),
            ],
            wanting=[
                Wanting(
                    bag=3, name="fits", owner="ann", tasks=10, missing=4, kind="able", text="could"
                )
            ],
            waiting=2, running=0, pilots=0, slots=0, busy=0, room=0,
            measures=SiteMeasures(jobs=4, wait_median=30.0, failure_rate=0.5),
            shares=[
                BagShare(
                    bag=3, name="fits", at=1.0, algorithm="static",
                    share=SiteShare(site=name, pilots=7, weight=2.0, text="weight 2 of 4"),
                )
            ],
        )  # fmt: skip
        return SiteExplanation(name=name, summary=answer.summary, answer=answer)

    def site_weights(self, algorithm: str = "") -> BrokerAnswer:
        self.told.append(("weights", algorithm))
        share = SiteShare(site="lab", pilots=0, weight=12.0, text="10 slots", measured_at=1.0)
        services = [
            ServiceAnswer(
                name="karnak",
                source="its URL",
                given_at=1.0,
                weights={"lab": 1.0, "lba": 2.0},
                failure="it did not answer well: x",
                fallback="measured",
            )
        ]
        return BrokerAnswer(
            at=1.0,
            algorithm="measured",
            tasks=0,
            text="measured",
            sites=[share],
            services=services,
        )

    def past_weights(self) -> list[WeightsAt]:
        return [
            WeightsAt(at=1.0, weights={"lab": 1.5}),
            WeightsAt(at=2.0, weights={"lab": 2.0, "far": 3}),
        ]

    def try_site(self, name: str) -> TrialView:
        self.told.append(("try", name))
        return self.trials.pop(0)

    def trial(self, name: str, job: str, *, seen: int = -1, wait_seconds: float = 0.0) -> TrialView:
        if not self.trials:
            raise KeyboardInterrupt
        return self.trials.pop(0)

    def end_trial(self, name: str, job: str) -> int:
        self.told.append(("end", name, job))
        return 1


def _view(name: str, **more: Any) -> SiteView:
    facts = SiteFacts(log=f"~/.covey/sites/{name}/log/covey-*-{{job}}.*")
    spec = SiteSpec(name=name, driver="slurm", slots=4, options={"partition": "short"}, facts=facts)
    known = {"driver": "slurm", "status": "on", "origin": "added", "spec": spec}
    return SiteView(name=name, **{**known, **more})


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    for name in ("reader", "client", "running_client"):
        monkeypatch.setattr(bag_places, name, lambda config: made)
    return made


# -- seeing --------------------------------------------------------------------------------------


def test_list(look: Look, source: Fake) -> None:
    lines = look("site", "list").stdout.splitlines()
    assert lines[1].split()[:3] == ["lab", "slurm", "on"]
    assert lines[2].split()[:3] == ["far", "slurm", "rests"]
    assert lines[2].endswith("no route")
    assert json.loads(look("site", "list", "--json").stdout)[1]["trouble"] == "no route"
    source.held = []
    assert "covey site add" in look("site", "list").stderr


def test_without_a_server_covey_toml_is_shown(
    look: Look, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bag_places, "running_client", lambda config: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "covey.toml").write_text('[sites.lab]\ndriver = "pbs"\nwall = "2h"\n')
    ran = look("site", "list")
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["site", "local", "lab"]
    assert "no server runs here" in ran.stderr
    assert look("site", "show", "lab").stdout.endswith('[sites.lab]\ndriver = "pbs"\nwall = "2h"\n')
    assert "no site nope" in str(look("site", "show", "nope", status=1).exception)
    assert "no server runs here" in str(look("explain", "site", "lab", status=1).exception)
    shown = look("config", "show").stdout
    assert "sites.lab.wall" in shown
    assert json.loads(look("config", "show", "--json").stdout)["sites.lab.wall"]["value"] == "2h"


def test_show(look: Look) -> None:
    told = look("site", "show", "lab").stdout
    assert "site            lab (slurm), from added" in told
    assert '[sites.lab]\ndriver = "slurm"\nslots = 4\n' in told
    assert '[sites.lab.options]\npartition = "short"' in told
    assert json.loads(look("site", "show", "lab", "--json").stdout)["spec"]["slots"] == 4


def test_explain(look: Look) -> None:
    told = look("explain", "site", "lab").stdout
    assert told.startswith("site lab: 0 pilots with 0 slots there: it is paused\n")
    assert "limits  queued: 2 of 10" in told
    assert "all_memory: 1.0 GB of 4.0 GB" in told
    assert "running: 2 of any number" in told
    assert "demand  10 tasks of bag 3 fits, 4 of them with no slot expected: could" in told
    assert "broker  for bag 3 fits it got 7 pilots" in told
    assert "ago (static): weight 2 of 4" in told
    assert json.loads(look("explain", "site", "lab", "--json").stdout)["answer"]["waiting"] == 2
    assert "which site?" in look("explain", "site", status=2).stderr
    assert "'x' is not a valid integer" in look("explain", "3", "x", status=2).stderr
    assert "known   wait: 30 s" in told
    assert "jobs failed: 50 %" in told


def test_weights(look: Look, source: Fake) -> None:
    lines = look("site", "weights").stdout.splitlines()
    assert lines[0] == "broker: measured"
    assert lines[2].split()[:2] == ["lab", "12"]
    assert lines[2].endswith("ago  10 slots")
    assert json.loads(look("site", "weights", "--json").stdout)["sites"][0]["weight"] == 12.0
    assert lines[3].startswith("service karnak: weights of 2 sites, from its URL, ")
    end = "; there is no site lba; these are still used, but it did not answer well: x"
    assert lines[3].endswith(end)
    look("site", "weights", "--broker", "price")
    assert source.told[-1] == ("weights", "price")


def test_weights_over_time(look: Look) -> None:
    lines = look("site", "weights", "--history").stdout.splitlines()
    assert lines[0].split() == ["time", "lab", "far"]
    assert [line.split()[2:] for line in lines[1:]] == [["1.5"], ["2", "3"]]
    past = json.loads(look("site", "weights", "--history", "--json").stdout)
    assert past[1]["weights"] == {"lab": 2.0, "far": 3.0}


# -- writing -------------------------------------------------------------------------------------


def test_words() -> None:
    table = changed(
        {"driver": "slurm", "memory": "4G", "options": {"partition": "a", "qos": "b"}},
        ["memory=", "slots=8", "wall=2h", "idle=90", "users=ann, bob", "python=3", "shared=true",
         "options.qos=", "options.nice=3", "options.hosts=[\"n1\", \"n2\"]", "options.account=x y",
         "environment.A=1"],
    )  # fmt: skip
    assert table == {
        "driver": "slurm", "slots": 8, "wall": "2h", "idle": 90, "users": ["ann", "bob"],
        "python": "3", "shared": True, "environment": {"A": "1"},
        "options": {"partition": "a", "nice": 3, "hosts": ["n1", "n2"], "account": "x y"},
    }  # fmt: skip


def test_what_is_written_reads_the_same(tmp_path: Path) -> None:
    spec = read("lab", {"driver": "slurm", "options": {"hosts": ["a", "b"], "x": True, "y": 'q"'},
                        "environment": {"A": "1"}, "setup": "a\nb", "wall": "90m"})  # fmt: skip
    path = tmp_path / "site.toml"
    path.write_text("\n".join(written("lab", table_of(spec))))
    assert read("lab", from_file(str(path), "lab")) == spec


def test_add(look: Look, source: Fake, tmp_path: Path) -> None:
    ran = look("site", "add", "new", "driver=slurm", "wall=2h", "options.partition=short")
    assert "try it: covey site test new" in ran.stderr
    table = {"driver": "slurm", "wall": "2h", "options": {"partition": "short"}}
    assert source.told == [("save", "new", table)]
    path = tmp_path / "new.toml"
    path.write_text('[sites.other]\ndriver = "pbs"\nslots = 2\n')
    added = look("site", "add", "other", "slots=3", "--file", str(path), "--json")
    assert json.loads(added.stdout)["spec"]["slots"] == 3
    assert "no table [sites.x]" in look("site", "add", "x", "--file", str(path), status=2).stderr
    assert "covey site edit lab" in look("site", "add", "lab", "driver=pbs", status=1).stderr
    assert "what kind of site is it?" in look("site", "add", "x", status=2).stderr
    assert "write KEY=VALUE" in look("site", "add", "x", "slurm", status=2).stderr
    assert "options is a table" in look("site", "add", "x", "options=short", status=2).stderr


def test_edit(look: Look, source: Fake) -> None:
    told = look("site", "edit", "lab", "slots=8", "options.partition=").stdout.splitlines()
    assert told[0] == "site lab:"
    assert '- partition = "short"' in told
    assert "+ slots = 8" in told
    assert source.told[-1] == ("save", "lab", {"driver": "slurm", "slots": 8, "options": {}})
    assert "nothing changed" in look("site", "edit", "lab", "slots=8").stdout
    assert "what should change?" in look("site", "edit", "lab", status=2).stderr
    source.held = [_view("lab", spec=None)]
    assert "only admins" in look("site", "edit", "lab", "slots=1", status=1).stderr


def test_status_words(look: Look, source: Fake) -> None:
    assert "covey site resume lab far" in look("site", "pause", "lab", "far").stderr
    look("site", "resume", "lab")
    look("site", "drain", "lab")
    assert "pilots are still ending at 1 site" in look("site", "remove", "lab").stderr
    assert source.told == [
        ("pause", "lab"), ("pause", "far"), ("resume", "lab"), ("drain", "lab"), ("remove", "lab"),
    ]  # fmt: skip
    assert json.loads(look("site", "pause", "lab", "--json").stdout) == {"count": 1}


# -- trying --------------------------------------------------------------------------------------


def trial(*steps: tuple[str, str], **more: Any) -> TrialView:
    told = [TrialStep(kind=kind, at=10.0 + n, text=text) for n, (kind, text) in enumerate(steps)]
    known = {"job": "1-1", "site": "lab", "address": "https://here:1"}
    return TrialView(steps=told, **{**known, **more})


ASKED, SENT, BEGAN = ("asked", ""), ("submitted", "4711"), ("started", "")


def test_a_site_that_works(look: Look, source: Fake) -> None:
    spoke, ready = ("enrolled", "n7"), ("ready", "")
    source.trials = [trial(ASKED), trial(ASKED, SENT), trial(ASKED, SENT, BEGAN, spoke, ready)]
    ran = look("site", "test", "lab")
    assert [line.split(maxsplit=2)[2] for line in ran.stdout.splitlines()] == [
        "one pilot is asked for",
        "submitted; the site calls it 4711",
        "started, as the site says",
        "its pilot calls the server, from n7",
        "its pilot asks for work",
    ]
    assert "site lab works: a pilot in 4.0 s" in ran.stderr
    assert source.told == [("try", "lab"), ("end", "lab", "1-1")]


@pytest.mark.parametrize(
    ("steps", "more", "told"),
    [
        (
            [("refused", "sbatch: command not found")],
            {},
            ["refused: sbatch: command not found", "environment.PATH", "covey site show lab"],
        ),
        (
            [("refused", "sbatch: fatal: Could not establish a configuration source")],
            {},
            ["SLURM_CONF, SGE_ROOT"],
        ),
        (
            [("refused", "cannot connect to a: Could not resolve hostname a")],
            {},
            ["ssh -o BatchMode=yes HOST true"],
        ),
        (
            [("refused", "Invalid account")],
            {},
            ["refused: Invalid account", "try the same there by hand"],
        ),
        (
            [],
            {"trouble": "its credentials are missing: ~/proxy"},
            ["credentials are missing", "renew them"],
        ),
        ([SENT], {}, ["it did not start in time", "as 4711", "--timeout 2h"]),
        (
            [SENT, BEGAN],
            {"address": "http://127.0.0.1:8"},
            ["only pilots on this machine", 'listen = "0.0.0.0"'],
        ),
        (
            [SENT, BEGAN, ("ended", "exit status 1")],
            {},
            ["after it started, ended: exit status 1", "curl -k https://here:1/healthz"],
        ),
        (
            [SENT, BEGAN, ("enrolled", "n7"), ("left", "the site's check ended with status 3")],
            {},
            ["left before it could work: the site's check ended with status 3", "(check, setup)"],
        ),
        (
            [("refused", "sbatch: error: Memory specification can not be satisfied")],
            {},
            ["ask for less (slots, memory"],
        ),
        (
            [SENT, ("vanished", "")],
            {},
            ["after it was submitted, not listed any more", "~/.covey/sites/lab/log/covey-*-1-1.*"],
        ),
    ],
)
def test_where_it_fails_and_what_to_do(
    look: Look, source: Fake, steps: list[tuple[str, str]], more: dict[str, Any], told: list[str]
) -> None:
    over = bool(steps) and steps[-1][0] in ("refused", "ended", "vanished", "left")
    source.trials = [trial(ASKED, *steps, over=over, **more)]
    ran = look("site", "test", "lab", "--timeout", "0s", status=1)
    for words in ["site lab does not work yet", *told]:
        assert words in ran.stderr
    assert source.told[-1] == ("end", "lab", "1-1")
    source.trials = [trial(ASKED, *steps, over=over, **more)]
    found = json.loads(look("site", "test", "lab", "--timeout", "0s", "--json", status=1).stdout)
    assert found["works"] is False
    assert found["step"] == [ASKED, *steps][-1][0]
    assert found["advice"]


@pytest.mark.parametrize(
    ("reason", "right", "wrong"),
    [
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not "
            "available",
            "ask for less",
            "SLURM_CONF",
        ),
        (
            "sbatch: error: s_p_parse_file: cannot stat file /x: No such file or directory; "
            "sbatch: fatal: Unable to process configuration file",
            "SLURM_CONF",
            "environment.PATH",
        ),
        (
            "lab: cannot use /nowhere/x there: mkdir: cannot create directory '/nowhere': "
            "Permission denied",
            "directory=",
            "kinit",
        ),
        (
            "lab: cannot use /proc/x there: mkdir: cannot create directory '/proc/x': No such file "
            "or directory",
            "directory=",
            "environment.PATH",
        ),
    ],
)
def test_hints_fit_the_reason(
    look: Look, source: Fake, reason: str, right: str, wrong: str
) -> None:
    source.trials = [trial(ASKED, ("refused", reason), over=True)]
    told = look("site", "test", "lab", status=1).stderr
    assert right in told
    assert wrong not in told


def test_pbs_has_names_of_its_own_for_what_pilots_print(
    look: Look, source: Fake, tmp_path: Path
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "4711.OU").write_text("covey: there is no python9\n")
    facts = SiteFacts(log=f"{tmp_path}/log/{{handle}}.OU")
    source.held = [_view("lab", spec=SiteSpec(name="lab", driver="pbs", facts=facts))]
    source.trials = [trial(ASKED, SENT, ("ended", "FAILED"), over=True)]
    told = look("site", "test", "lab", status=1).stderr
    assert f"covey: there is no python9 ({tmp_path}/log/4711.OU)" in told


def test_what_the_pilot_printed_is_shown_if_it_is_here(
    look: Look, source: Fake, tmp_path: Path
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "covey-ab-1-1.0.out").write_text("hello\ncovey: there is no python9\n\n")
    facts = SiteFacts(log=f"{tmp_path}/log/covey-*-{{job}}.*")
    spec = SiteSpec(name="lab", driver="slurm", facts=facts)
    source.held = [_view("lab", spec=spec)]
    source.trials = [trial(ASKED, SENT, ("ended", "FAILED"), over=True)]
    ran = look("site", "test", "lab", status=1)
    assert "the last line that the pilot printed: covey: there is no python9 (" in ran.stderr


def test_ctrl_c_takes_it_back(look: Look, source: Fake) -> None:
    source.trials = [trial(ASKED)]
    look("site", "test", "lab", status=1)
    assert source.told[-1] == ("end", "lab", "1-1")


def test_waiting_is_told_now_and_then(
    look: Look, source: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_trial, "REMIND_SECONDS", -1.0)
    source.trials = [
        trial(ASKED),
        trial(ASKED, SENT, trouble="it rests"),
        trial(ASKED, SENT, BEGAN),
    ]
    ran = look("site", "test", "lab", status=1)  # and Ctrl-C
    assert "… waiting for at most 10 m 00 s more; Ctrl-C cancels the pilot" in ran.stdout
    assert "the site: it rests" in ran.stdout


def test_what_is_known_of_a_site_is_shown(look: Look, source: Fake) -> None:
    source.held = [
        _view(
            "lab",
            measures=SiteMeasures(
                jobs=12,
                waiting=5,
                wait_median=90.0,
                wait_p90=600.0,
                wait_at_least=True,
                wait_trend=-120.0,
                start_overhead=4.0,
                lifetime=3600.0,
                failure_rate=0.25,
                preemption_rate=0.0,
                speed=1.5,
                filling_rate=0.8,
                measured_at=time.time() - 60.0,
                free_cores=40,
                total_cores=128,
                queue_length=7,
                capacity_at=time.time() - 30.0,
            ),
        ),
        _view("far", measures=SiteMeasures(free_nodes=3, capacity_at=1.0)),
    ]
    listed = look("site", "list").output.splitlines()
    assert "> 1 m 30 s" in listed[1]
    assert "25 %" in listed[1]
    assert "40 of 128" in listed[1]
    assert "3 nodes" in listed[2]
    shown = " ".join(look("site", "show", "lab").output.split())
    for words in (
        "wait > 1 m 30 s",
        "longest waits 10 m",
        "wait grows by -2 m",
        "start-up 4.0 s",
        "a pilot stays 1 h",
        "jobs failed 25 %",
        "jobs preempted 0 %",
        "speed 1.5 times the average site's",
        "slots filled 80 %",
        "from 12 jobs, 5 of which still wait",
        "free there 40 of 128 cores,",
        "queue there 7 jobs of everybody",
    ):
        assert words in shown, shown


def test_jobs_of_a_site(look: Look, source: Fake) -> None:
    text = " ".join(look("site", "jobs", "lab").output.split())
    for words in (
        "3-1.0 77_0 ann 4 preempted",
        "1 m 00 s 3.0 s 5 m 00 s",
        "9 node3 /covey/log/77_0.out",
    ):
        assert words in text, text
    assert "PREEMPTED, requeued 1 times" in text
    assert source.told[-1] == ("jobs", "lab", 50)
    assert json.loads(look("site", "jobs", "lab", "-n", "3", "--json").output)[0]["log"] == JOB.log
    assert source.told[-1] == ("jobs", "lab", 3)
    assert "has had no jobs" in look("site", "jobs", "far").stderr
