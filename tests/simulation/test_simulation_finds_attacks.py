"""The simulation finds each fault that lets a sender who means harm do some."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodepool.contract.log import Entry, LogId
from nodepool.engine.records import Followed
from support.simulation.faults import first_violation
from support.simulation.profile import ORDINARY

ATTACKED = replace(ORDINARY, steps=2_500, attacks=0.04)


def any_record(entry: Entry, _log: LogId, *, committed: int, **_: object) -> Followed | None:
    """Believes every commit record that names a position, and all that was said before it."""
    try:
        position = json.loads(entry.content)["position"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    if not committed <= position < entry.position:
        return None
    return Followed(position, 0, False, is_chained=True)


PLANTS: Mapping[str, tuple[str, object]] = {
    "a commit record is believed, whoever wrote it": ("nodepool.engine.replica.follow", any_record),
    "an event is believed on a subject that is not its own": (
        "nodepool.contract.decode._find_misplacement",
        lambda *_: None,
    ),
    "an event on the subject of a command is passed over": (
        "nodepool.service.Service.is_unknown_command",
        lambda *_: False,
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_what_lets_a_sender_do_harm_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, instead = PLANTS[name]
    monkeypatch.setattr(function, instead)

    violation = first_violation(profile=ATTACKED)

    assert violation != ""


def test_nothing_is_found_where_a_sender_can_do_no_harm() -> None:
    assert first_violation(profile=ATTACKED, seeds=2) == ""
