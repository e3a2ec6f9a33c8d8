"""What every record must do when a bag is purged that is not there any more."""

import pytest

from covey.core.record.actions import PurgeBag
from tests.contract.keeping import Kept
from tests.unit.store.builders import BAG, a_bag_of, finished, successes


@pytest.mark.parametrize("what", ["logs", "files", "all"])
def test_a_bag_that_is_gone_can_be_purged_again(kept: Kept, what: str) -> None:
    kept.record.apply([*a_bag_of(1), successes([0]), finished(1), PurgeBag(BAG, "all")])
    kept.record.apply([PurgeBag(BAG, what)])
    assert kept.reader.bag(BAG) is None
    assert not kept.reader.bags()
