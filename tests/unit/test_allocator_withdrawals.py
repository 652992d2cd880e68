"""A request that a Node give way, and its withdrawal, change nothing if nothing came of them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from allocator.changes import MemberChanged, change_member
from allocator.members import Member
from nodepool.contract.events import (
    NodePreempted,
    NodePreemptionRequested,
    NodePreemptionWithdrawn,
    PreemptionPending,
)
from nodepool.contract.model import RemovalReason
from support.constants import ZONE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OF = {"org": "acme", "cluster": "prod", "pool": "cheap", "node": "m1", "zone": ZONE}
ASKED = NodePreemptionRequested.model_validate({**OF, "assignment": 1, "cause": "Reclaimed"})
WITHDRAWN = NodePreemptionWithdrawn.model_validate({**OF, "assignment": 1})
WARNED = PreemptionPending.model_validate({**OF, "assignment": 1, "since": NOON, "message": ""})
GONE_AT_ONCE = NodePreempted.model_validate({**OF, "assignment": 1})
SCALE_DOWN = RemovalReason.SCALE_DOWN
STAYING = Member(1, registered=True, active=True)
BUSY_VICTIM = replace(STAYING, removal=SCALE_DOWN, removed_in=2, requests=1, blocked=True)
KEPT_UNANSWERED = replace(BUSY_VICTIM, removal=None, is_cancelled=True)
MEMBERS = {
    "stays": STAYING,
    "boots": Member(1),
    "waits for its Pods": BUSY_VICTIM,
    "is kept if lifecycle still can": KEPT_UNANSWERED,
    "is reserved": replace(STAYING, is_reserved=True),
    "leaves with its NodePool": replace(STAYING, removal=RemovalReason.POOL_DELETED, requests=1),
}


def after(member: Member, *events: MemberChanged) -> Member:
    """Return a Node after these events."""
    for event in events:
        member = change_member(member, event, 2, NOON)
    return member


@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
def test_a_request_that_is_taken_back_leaves_nothing(member: Member) -> None:
    assert after(member, ASKED) != member
    assert after(member, ASKED, WITHDRAWN) == member


@pytest.mark.parametrize("begins", [WARNED, GONE_AT_ONCE], ids=["warned", "at once"])
@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
def test_a_preemption_that_has_begun_goes_on(member: Member, begins: MemberChanged) -> None:
    begun = after(member, begins)

    # then a request before it, and a withdrawal on either side of it, change nothing
    assert after(member, ASKED, begins) == begun
    assert after(member, ASKED, begins, WITHDRAWN) == begun
    assert after(member, ASKED, WITHDRAWN, begins) == begun


def test_a_node_that_became_unhealthy_meanwhile_is_replaced() -> None:
    asked = after(STAYING, ASKED)

    stays = after(replace(asked, is_unhealthy=True), WITHDRAWN)

    assert stays == replace(STAYING, is_unhealthy=True, removal=RemovalReason.UNHEALTHY)


def test_a_node_that_goes_with_its_nodepool_still_goes_in_its_own_time() -> None:
    asked = replace(after(STAYING, ASKED), removal=RemovalReason.POOL_DELETED)

    going = after(asked, WITHDRAWN)

    assert going == replace(STAYING, removal=RemovalReason.POOL_DELETED)
