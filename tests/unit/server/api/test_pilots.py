"""Bodies of very many values are refused before anybody reads them."""

import json

import pytest

from covey.pilot.protocol.message_limits import allowed_end
from covey.pilot.protocol.messages import MOST_LOG_COMMAS, MOST_SYNC_COMMAS, OK, End, Sync
from covey.server.api.pilots import checked
from covey.server.web.problems import HttpProblem


def test_a_message_of_too_many_values_is_refused() -> None:
    body = b'{"receipts": [' + b'"",' * (MOST_SYNC_COMMAS + 1) + b'""]}'
    with pytest.raises(HttpProblem, match="more than 600,000 values") as caught:
        checked(Sync, body)
    assert caught.value.status == 413


def test_a_pilot_cuts_logs_that_would_be_refused() -> None:
    commas = "," * (MOST_LOG_COMMAS // 2 + 1)
    end = End(1, 1, 1, 1, OK, stdout=commas, stderr=commas)
    found = allowed_end(end)
    assert found.outcome == OK
    assert "its output was cut" in found.message
    assert json.dumps(found).count(",") < MOST_SYNC_COMMAS
    few = end._replace(stderr="")
    assert allowed_end(few) == few
