"""A service that tests run alone processes messages, and is woken when work is due."""

from datetime import timedelta

import pytest

from nodepool.contract.conditions import Quota
from quota.decide import SERVICE
from support.single import NOON, SingleService
from unit.quota_service import configured, limit_of, node_deleted, specified, verdict


def test_each_message_is_stored_a_second_after_the_one_before() -> None:
    service = SingleService(SERVICE)

    service.process(limit_of(1))
    service.process(limit_of(2))

    assert service.position == 2
    assert service.now == NOON + timedelta(seconds=2)


def test_a_message_that_leaves_work_is_followed_by_wakes_until_none_is_due() -> None:
    # given a NodePool that waits for a limit
    first, second = SingleService(SERVICE), SingleService(SERVICE)
    first.process(specified("train", 3))
    second.process(specified("train", 3))

    # when it is set, with and without the wakes that follow
    at_once = first.process(limit_of(3))
    has_work = first.has_work
    woken = first.wake_until_idle()
    both = second.hears(limit_of(3))

    # then the wakes have the outputs for the work
    assert at_once == configured(3, granted=0)
    assert has_work
    assert woken == [verdict("train", Quota.UNDER, granted=3, limit=3, used=3)]
    assert both == [*at_once, *woken]
    assert not first.has_work
    assert not second.has_work


def test_a_message_that_the_service_cannot_process_fails_the_test() -> None:
    service = SingleService(SERVICE)
    service.process(specified("train", 1))

    with pytest.raises(AssertionError, match="holds fewer than no Nodes"):
        service.process(node_deleted("train"))
