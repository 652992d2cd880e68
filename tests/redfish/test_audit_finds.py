"""The auditor of power requests finds each reset without a request, and each missing reset.

Without a case here, an auditor that counts the resets of all requests together would pass.
"""

from datetime import UTC, datetime, timedelta

import pytest

from nodepool.contract.events import PowerRequested
from nodepool.contract.real_machines import PowerAction
from redfish.audit import Handover, Intention, find_faults, list_handovers
from redfish.site import WIPED
from support.constants import ZONE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Reset = tuple[float, str, bool]
"""The minute at which a reset arrived, its kind, and whether it reached the machine."""


def at(minute: float) -> datetime:
    """A minute of the story."""
    return NOON + timedelta(minutes=minute)


def intention(
    number: int, action: PowerAction, outcome: str = "done", overdue: float = 100
) -> Intention:
    """A request that was stored in the minute of its number, for a stay."""
    request = PowerRequested(
        zone=ZONE,
        machine="m0",
        number=number,
        action=action,
        within_s=60,
        assignment=1,
        reason="a NodePool has it",
    )
    return Intention(request, begins=at(number), ends=at(overdue), outcome=outcome)


def audited(intentions: list[Intention], resets: list[Reset]) -> list[str]:
    """What the auditor finds."""
    return find_faults(
        intentions, [(at(minute), kind, has_effect) for minute, kind, has_effect in resets]
    )


def round_of_a_stay() -> list[Intention]:
    """A machine is powered on, off, on and off."""
    actions: list[PowerAction] = ["on", "off", "on", "off"]
    return [intention(number, action) for number, action in enumerate(actions, 1)]


WELL: list[Reset] = [
    (1.5, "On", True),
    (2.5, "ForceOff", True),
    (3.5, "On", True),
    (4.5, "ForceOff", True),
]


def test_a_reset_for_each_request_is_right() -> None:
    assert audited(round_of_a_stay(), WELL) == []


def test_an_extra_reset_does_not_make_up_for_a_missing_one_of_its_kind() -> None:
    # given two power-ons for the first request and none for the third
    resets = [WELL[0], (1.6, "On", True), WELL[1], WELL[3]]

    assert audited(round_of_a_stay(), resets) == [
        "request 1 (on) has the resets ['On', 'On']",
        "request 1 is done, and has 2 effects",
        "request 3 is done, and has 0 effects",
    ]


@pytest.mark.parametrize(
    ("outcome", "resets", "faults"),
    [
        ("unknown", [], []),
        ("unknown", [(1.5, "On", True)], []),
        ("", [], []),
        ("", [(1.5, "On", False)], []),
        ("refused", [(1.5, "On", False)], []),
        ("refused", [(1.5, "On", True)], ["request 1 is refused, and has 1 effects"]),
        ("done", [(1.5, "On", False)], ["request 1 is done, and has 0 effects"]),
        ("", [(1.5, "ForceOff", True)], ["request 1 (on) has the resets ['ForceOff']"]),
        ("", [(0.5, "On", True)], ["reset 0 (On) arrived while no request was open"]),
        ("", [(9.5, "On", True)], ["reset 0 (On) arrived while no request was open"]),
        (
            "unknown",
            [(1.5, "On", False), (2.5, "On", True)],
            ["request 1 (on) has the resets ['On', 'On']"],
        ),
    ],
)
def test_a_request_has_the_resets_that_its_outcome_allows(
    outcome: str, resets: list[Reset], faults: list[str]
) -> None:
    assert audited([intention(1, "on", outcome, overdue=9)], resets) == faults


def test_nothing_powers_a_machine_on_for_nobody() -> None:
    wanted = intention(1, "on")
    wanted.request = wanted.request.model_copy(update={"assignment": 0})

    assert audited([wanted], WELL[:1]) == ["request 1 powers on for nobody"]


A, B, WIPE = "https://boot/node?org=a", "https://boot/node?org=b", "https://boot/wipe?report=r"


@pytest.mark.parametrize(
    ("history", "is_wiped"),
    [
        ([A, WIPE, WIPED, B], True),
        ([A, A, WIPE, WIPE, WIPED, B], True),
        ([A, B], False),
        ([A, WIPE, B], False),
        ([A, WIPED, B], False),
        ([WIPE, WIPED, A, B], False),
        ([A, WIPE, WIPED, A, B], False),
    ],
)
def test_a_handover_is_wiped_if_a_wipe_after_the_last_boot_was_confirmed(
    history: list[str], is_wiped: bool
) -> None:
    assert list_handovers(history) == [Handover("a", "b", is_wiped)]


def test_a_machine_that_stays_with_its_organisation_is_not_handed_over() -> None:
    assert list_handovers([WIPE, WIPED, A, A, WIPE, WIPED, A]) == []
