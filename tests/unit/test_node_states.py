"""Which phase may follow which, what cures a Node, and the pages that show both."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.health import HEALTHY, Asked, Health, Problem, make_plan
from nodepool.contract.health import BY_TYPE, CAUSES, Remedy, causes_table, cordon_cause
from nodepool.contract.model import NodeAction, NodePhase
from nodepool.contract.node_states import (
    PHASE_MOVES,
    STATE_MOVES,
    MachineState,
    may_follow,
    states_table,
)
from nodepool.contract.timetable import RELAPSE
from support.single import NOON

PAGE = Path(__file__).parents[2] / "shared" / "NODES.md"
MANNERS = st.sampled_from(["", "safe", "forced"])
PROBLEMS = st.sets(st.sampled_from(sorted(BY_TYPE))).map(
    lambda types: tuple(Problem(each, NOON) for each in sorted(types))
)
HEALTHS = st.builds(
    Health,
    problems=PROBLEMS,
    cures=st.just(()),
    rack=st.just(""),
    silence=st.none(),
    reserved=st.just(""),
    asked=st.builds(
        Asked, cordon=st.sampled_from(["", "AdminCordon"]), drain=MANNERS, reboot=MANNERS
    ),
)


def shown(mark: str) -> str:
    """What the page says between two marks."""
    return PAGE.read_text(encoding="utf-8").split(f"<!-- {mark} -->")[1].strip()


def problem(fault: str, since: timedelta = timedelta()) -> Problem:
    """A problem that came so long after noon."""
    return next(Problem(CAUSES[each].type, NOON + since) for each in CAUSES if each == fault)


def test_the_page_shows_both_tables() -> None:
    assert shown("states") == states_table()
    assert shown("causes") == causes_table()


def test_every_phase_and_state_has_its_moves() -> None:
    assert set(PHASE_MOVES) == set(NodePhase)
    assert set(STATE_MOVES) == set(MachineState)
    assert all(phase not in moves for phase, moves in PHASE_MOVES.items())


@pytest.mark.parametrize("phase", [phase for phase in NodePhase if phase is not NodePhase.DELETED])
def test_a_node_may_be_deleted_in_every_phase_and_never_comes_back(phase: NodePhase) -> None:
    assert may_follow(phase, NodePhase.DELETED)
    assert may_follow(phase, phase)
    assert not may_follow(NodePhase.DELETED, phase)
    assert not may_follow(phase, NodePhase.BOOTING) or phase is NodePhase.BOOTING


def test_a_rebooted_node_goes_through_its_verification_and_back() -> None:
    phases = (
        NodePhase.PRODUCTION,
        NodePhase.CORDONED,
        NodePhase.DRAINING,
        NodePhase.REBOOTING,
        NodePhase.VERIFYING,
        NodePhase.PRODUCTION,
    )

    assert all(may_follow(before, after) for before, after in pairwise(phases))


def test_each_condition_reports_one_problem() -> None:
    assert len(BY_TYPE) == len(CAUSES)


# What is to become of a Node.


@given(health=HEALTHS, evicts=st.booleans())
def test_what_needs_triage_is_never_cured_in_place_unless_that_is_forced(
    health: Health, evicts: bool
) -> None:
    outcome = make_plan(health, evicts=evicts)

    types = {BY_TYPE[each.type].remedy for each in health.problems}
    is_agreed = evicts or bool(health.asked.drain)
    is_forced = health.asked.reboot == "forced"
    assert outcome.removes is (is_agreed and Remedy.TRIAGE in types and not is_forced)
    assert not (outcome.removes and outcome.action is not None)


@given(health=HEALTHS)
def test_an_unhealthy_node_is_only_cordoned_until_someone_asks(health: Health) -> None:
    outcome = make_plan(health, evicts=False)

    if not (health.asked.drain or health.asked.reboot):
        assert (outcome.removes, outcome.action) == (False, None)
    assert set(outcome.causes) >= {cordon_cause(each.type) for each in health.problems}


@given(health=HEALTHS, evicts=st.booleans())
def test_only_a_forced_command_waits_for_nothing(health: Health, evicts: bool) -> None:
    forced = make_plan(health, evicts=evicts).forced

    assert not forced or "forced" in (health.asked.drain, health.asked.reboot)


def test_a_healthy_node_is_left_alone() -> None:
    assert make_plan(HEALTHY, evicts=True).is_nothing


@pytest.mark.parametrize(
    ("faults", "action"),
    [
        (("xid",), NodeAction.REBOOT),
        (("kernel-deadlock", "xid"), NodeAction.REBOOT),
        (("nvlink", "xid"), NodeAction.POWERRESET),
    ],
)
def test_one_reboot_cures_several_problems(faults: tuple[str, ...], action: NodeAction) -> None:
    problems = tuple(sorted(problem(fault) for fault in faults))

    assert make_plan(Health(problems=problems), evicts=True).action is action


@pytest.mark.parametrize("early", [True, False])
def test_a_problem_is_a_relapse_within_an_hour_of_its_cure(early: bool) -> None:
    since = RELAPSE - timedelta(seconds=1) if early else RELAPSE
    again = problem("xid", since)
    health = Health(problems=(again,), cures=((again.type, NOON),))

    assert make_plan(health, evicts=True).removes is early
