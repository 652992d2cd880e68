"""A service has processed a log when its last commit record names its last input."""

from faults.progress import behind
from nodepool.service import commit_subject
from support.replay import scenario_log
from support.services import NAMES, services


def test_no_service_is_behind_where_each_has_committed_its_last_input() -> None:
    assert behind(services(), scenario_log()) == []


def test_a_service_whose_last_commit_is_missing_is_behind() -> None:
    whole = scenario_log()
    records = [entry for entry in whole if entry.subject == commit_subject("aggregator")]

    log = tuple(entry for entry in whole if entry != records[-1])

    assert behind(services(), log) == ["aggregator"]


def test_services_that_have_never_committed_are_behind() -> None:
    log = tuple(entry for entry in scenario_log() if not entry.subject.startswith("np.commit."))

    assert behind(services(), log) == list(NAMES)
