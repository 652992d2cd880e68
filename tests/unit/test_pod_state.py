"""What a program that runs as a Pod has to do, as what the log says of that Pod comes in."""

from datetime import timedelta

import pytest

from nodepool.cli.pod_state import PodState
from nodepool.client.pods import PodEvent
from nodepool.contract.events import PodChanged, PreemptionPending
from nodepool.contract.events.fleet import PodPhase
from nodepool.contract.messages import PoolFields
from support.single import NOON

OF: PoolFields = {"org": "acme", "cluster": "prod", "pool": "batch"}


def pod(
    phase: PodPhase, number: int = 7, *, seconds: float = 0, grace_s: int = 60, node: str = "g1"
) -> PodEvent:
    """The Pod is in this phase, so many seconds after noon."""
    event = PodChanged(
        **OF,
        name="job",
        uid="1",
        number=number,
        phase=phase,
        node=node,
        zone="US-EAST-04A",
        assignment=3,
        grace_s=grace_s,
        message="its Node is drained" if phase in ("Terminating", "Gone") else "",
    )
    return PodEvent(event, NOON + timedelta(seconds=seconds))


def preempted(node: str = "g1", assignment: int = 3) -> PodEvent:
    """A Node is preempted."""
    event = PreemptionPending(
        **OF, node=node, zone="US-EAST-04A", assignment=assignment, since=NOON, message=""
    )
    return PodEvent(event, NOON)


def after(*events: PodEvent, earlier: int = 5) -> PodState:
    """The state after these events."""
    state = PodState(earlier)
    for event in events:
        state = state.after(event)
    return state


def test_a_pod_that_runs_does_not_end() -> None:
    state = after(pod("Pending", node=""), pod("Running"))

    assert (state.phase, state.ends, state.is_taken) == ("Running", False, False)


def test_a_pod_in_its_grace_period_has_all_of_it() -> None:
    state = after(pod("Running"), pod("Terminating", seconds=10))

    assert (state.ends, state.grace_s, state.why) == (True, 60.0, "its Node is drained")


def test_a_pod_that_is_gone_had_as_long_as_it_took() -> None:
    gone = pod("Gone", seconds=25)

    late = after(pod("Running"), pod("Terminating", seconds=10), gone)
    at_once = after(pod("Running"), gone)

    assert (late.grace_s, at_once.grace_s) == (15.0, 0.0)


@pytest.mark.parametrize("number", [4, 5])
def test_an_earlier_pod_of_the_same_name_is_another(number: int) -> None:
    state = after(pod("Gone", number))

    assert state.phase is None


def test_another_pod_of_the_same_name_is_another() -> None:
    state = after(pod("Running"), pod("Gone", 9))

    assert state.phase == "Running"


def test_the_next_pod_begins_anew_and_does_not_hear_of_the_last() -> None:
    state = after(pod("Running"), preempted(), pod("Terminating")).next()

    assert (state.phase, state.is_taken) == (None, False)
    assert state.after(pod("Gone")).phase is None
    assert state.after(pod("Pending", 8)).phase == "Pending"


@pytest.mark.parametrize(
    ("event", "is_taken"),
    [(preempted(), True), (preempted("g2"), False), (preempted("g1", 2), False)],
)
def test_a_preemption_counts_where_it_is_of_its_own_node(event: PodEvent, is_taken: bool) -> None:
    state = after(pod("Running"), event)

    assert (state.is_taken, state.ends) == (is_taken, False)
