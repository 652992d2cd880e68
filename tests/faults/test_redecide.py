"""Deciding once more on a log finds what a service did not say, and nothing in a right log."""

import pytest

from faults.redecide import differences
from nodepool.contract.log import LogId
from nodepool.engine.waiting import WAITING_MAX
from support.replay import scenario_log
from support.services import services
from support.tampering import changed, without
from support.world_harness import WorldHarness

ID = LogId("world")
"""The identity of a log in memory."""


@pytest.mark.parametrize("name", [service.name for service in services()])
def test_what_lies_in_a_right_log_is_decided_again(name: str) -> None:
    (service,) = services(name)

    assert list(differences(service, scenario_log(), ID)) == []


def test_an_output_that_a_service_would_not_say_is_found() -> None:
    log = changed("QuotaChecked", granted=7)(scenario_log())

    (quota,) = services("quota")
    found = list(differences(quota, log, ID))

    assert len(found) > 0
    assert "QuotaChecked" in found[0]


def test_an_output_that_is_missing_is_found() -> None:
    log = without("CWNodePoolCreated")(scenario_log())

    (validator,) = services("validator")
    assert list(differences(validator, log, ID)) != []


def test_commands_that_wait_no_longer_count_when_it_is_decided_again() -> None:
    # given more commands of one organisation than may wait at once, each processed on its own
    world = WorldHarness()
    world.given_cluster()
    for number in range(WAITING_MAX + 5):
        world.scale("missing", number)

    (validator,) = services("validator")
    log = world.world.log
    assert list(differences(validator, log.entries, log.id)) == []


def test_commands_that_wait_count_when_it_is_decided_again() -> None:
    world = WorldHarness()
    world.given_cluster()
    with world.sent_together():
        for number in range(WAITING_MAX + 5):
            world.scale("missing", number)

    (validator,) = services("validator")
    log = world.world.log
    refused = [entry for entry in log.entries if b"TooManyRequests" in entry.content]
    assert len(refused) == 5
    assert list(differences(validator, log.entries, log.id)) == []
