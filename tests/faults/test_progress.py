"""A service has processed a log when its last commit record names its last input."""

from faults.progress import behind
from nodepool.service import commit_subject
from support.replay import run_scenario
from support.services import NAMES, services

LOG = tuple(run_scenario().world.log.entries)


def test_no_service_is_behind_where_each_has_committed_its_last_input() -> None:
    assert behind(services(), LOG) == []


def test_a_service_whose_last_commit_is_missing_is_behind() -> None:
    records = [entry for entry in LOG if entry.subject == commit_subject("aggregator")]

    log = tuple(entry for entry in LOG if entry != records[-1])

    assert behind(services(), log) == ["aggregator"]


def test_services_that_have_never_committed_are_behind() -> None:
    log = tuple(entry for entry in LOG if not entry.subject.startswith("np.commit."))

    assert behind(services(), log) == list(NAMES)
