"""Deciding once more on a log finds what a service did not say, and nothing in a right log."""

import pytest

from faults.redecide import differences
from support.replay import run_scenario
from support.services import services
from support.tampering import changed, without

WORLD = run_scenario().world
LOG = tuple(WORLD.log.entries)


@pytest.mark.parametrize("name", [service.name for service in services()])
def test_what_lies_in_a_right_log_is_decided_again(name: str) -> None:
    (service,) = services(name)

    assert list(differences(service, LOG, WORLD.log.id)) == []


def test_an_output_that_a_service_would_not_say_is_found() -> None:
    log = changed("QuotaChecked", granted=7)(LOG)

    (quota,) = services("quota")
    found = list(differences(quota, log, WORLD.log.id))

    assert len(found) > 0
    assert "QuotaChecked" in found[0]


def test_an_output_that_is_missing_is_found() -> None:
    log = without("CWNodePoolCreated")(LOG)

    (validator,) = services("validator")
    assert list(differences(validator, log, WORLD.log.id)) != []
