"""A service that tests run alone processes messages, and is woken when work is due."""

from datetime import timedelta

import pytest

from nodepool.contract.messages import pool_fields
from nodepool.contract.outcomes import build_acceptance
from quota.decide import SERVICE
from support.sample_service import JOB, JobQueued, enqueue, pages
from support.sample_service import SERVICE as PRINTER
from support.single import NOON, SingleService
from unit.quota_service import limit_of, node_deleted, specified


def test_each_message_is_stored_a_second_after_the_one_before() -> None:
    service = SingleService(SERVICE)

    service.process(limit_of(1))
    service.process(limit_of(2))

    assert service.position == 2
    assert service.now == NOON + timedelta(seconds=2)


def test_a_message_that_leaves_work_is_followed_by_wakes_until_none_is_due() -> None:
    # given a printer, with and without the wakes that follow
    first, second = SingleService(PRINTER), SingleService(PRINTER)
    command = enqueue(2)

    # when a job is left to the work queue
    at_once = first.process(command)
    has_work = first.has_work
    woken = first.wake_until_idle()
    both = second.hears(command)

    # then the wakes have the outputs for the work
    assert at_once == [
        build_acceptance(command, "configured"),
        JobQueued(**pool_fields(JOB), pages=2),
    ]
    assert has_work
    assert woken == list(pages([0, 1]))
    assert both == [*at_once, *woken]
    assert not first.has_work
    assert not second.has_work


def test_a_message_that_the_service_cannot_process_fails_the_test() -> None:
    service = SingleService(SERVICE)
    service.process(specified("train", 1))

    with pytest.raises(AssertionError, match="holds fewer than no Nodes"):
        service.process(node_deleted("train"))
