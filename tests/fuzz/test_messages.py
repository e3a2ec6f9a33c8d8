"""A hundred thousand messages that pilots should not send: none changes anything, none hurts."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from covey import wire
from covey.core.match import ranking
from covey.core.protocol import ends, pilots, recovery, report_check
from covey.core.record.model import PilotId
from covey.questions.pilot_questions import MayReportOutput
from covey.server.api import pilots as calls
from covey.server.web import auth
from tests.fuzz.talk import Complaint, talk

MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "100000"))
PARTS = 4
SERVERS = 10  # in each part, one after another
# Another seed every day; FUZZ_SEED brings one back.
SEED = int(os.environ.get("FUZZ_SEED", datetime.now(UTC).date().toordinal()))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_message_of_a_pilot_does_harm(part: int, tmp_path: Path) -> None:
    print(f"FUZZ_SEED={SEED}")
    seen: Counter[tuple[str, int]] = Counter()
    spoilt = 0
    for server in range(SERVERS):
        chance = random.Random(f"{SEED} {part} {server}")
        folder = tmp_path / str(server)
        found = asyncio.run(talk(folder, chance, MESSAGES // PARTS // SERVERS))
        seen += found.seen
        spoilt += found.spoilt
    print(spoilt, sorted(seen.items()))
    assert spoilt >= MESSAGES // PARTS
    for name in ("enrol", "sync", "leave", "printed", "files"):
        assert seen[name, 200], f"no {name} was accepted"
        assert any(seen[name, status] for status in (400, 403, 404, 405)), f"no {name} was refused"
        assert seen[name, 401], f"no {name} came with a wrong credential"
    assert not [name for name, status in seen if status == 503], "it has nothing else to do"
    assert seen["sync", 400] > spoilt / 20
    assert seen["sync", 200] > spoilt / 100


# -- it would find such a server -----------------------------------------------------------------


def asks_for_no_credential(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(auth.PilotSecrets, "left_seconds", lambda *_: 3600.0)


def asks_for_no_secret(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(auth.PilotSecrets, "owner", lambda *_: "")


def reads_syncs_as_they_come(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(report_check, "sync_problem", lambda *_: "")


def trips_over_bad_json(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "checked", wire.decode)


def acts_before_it_refuses(patch: pytest.MonkeyPatch) -> None:
    refusing: Callable[..., None] = pilots.sync

    def hasty(turn: Any, request: Any, sync: Any) -> None:
        pilot = turn.state.pilots.get(PilotId(sync.pilot))
        if pilot is not None:
            pilot.want = sync.want
        refusing(turn, request, sync)

    patch.setattr(pilots, "sync", hasty)


def believes_whoever_says_it_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ends, "_was_given", lambda *_: True)


def believes_whoever_says_they_have_it(patch: pytest.MonkeyPatch) -> None:
    adopt_one: Callable[..., None] = recovery._adopt_attempt

    def credulous(turn: Any, pilot: Any, id_: Any, one: Any, given: Any) -> None:
        adopt_one(turn, pilot, id_, one, {**given, id_: (one.bag, one.task)})

    patch.setattr(recovery, "_may_hold", lambda _, __, bag, one: one.task < bag.places.next)
    patch.setattr(recovery, "_adopt_attempt", credulous)


def sends_out_whatever_there_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ranking, "may_go", lambda _, __, bag: ranking.has_work(bag))


def shows_whatever_is_printed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MayReportOutput, "answer", lambda asked, *_: [True] * len(asked.attempts))


def forgets_a_request(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pilots, "_repeat", lambda *_: None)


@pytest.mark.parametrize(
    "bug",
    [
        asks_for_no_credential,
        asks_for_no_secret,
        reads_syncs_as_they_come,
        trips_over_bad_json,
        acts_before_it_refuses,
        believes_whoever_says_it_ended,
        believes_whoever_says_they_have_it,
        sends_out_whatever_there_is,
        shows_whatever_is_printed,
        forgets_a_request,
    ],
)
def test_the_fuzzer_finds_a_server_that(
    bug: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(talk(tmp_path / "sound", random.Random(1), 100))
    bug(monkeypatch)
    found = None
    for server in range(8):
        try:
            asyncio.run(talk(tmp_path / str(server), random.Random(server), 1000))
        except Complaint as complaint:
            found = complaint
            break
    print(server, str(found)[:300])
    assert found is not None
