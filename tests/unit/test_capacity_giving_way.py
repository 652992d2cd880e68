"""The capacity service counts a spot Node that gives way until it is gone, or stays after all."""

import pytest
from immutables import Map

from capacity.giving_way import GivesWay, fold_preemption
from nodepool.contract.events import (
    NodePreempted,
    NodePreemptionRequested,
    NodePreemptionWithdrawn,
    PreemptionPending,
)
from nodepool.contract.keys import MachineKey, machine_key
from support.constants import ZONE
from support.single import NOON

KEY = machine_key(ZONE, "m1")
OF = {"org": "acme", "cluster": "prod", "pool": "cheap"}
OF_NODE = {**OF, "node": "m1", "zone": ZONE, "assignment": 1}
ASKED = NodePreemptionRequested.model_validate({**OF_NODE, "cause": "Reclaimed"})
KEPT = NodePreemptionWithdrawn.model_validate(OF_NODE)
WARNED = PreemptionPending.model_validate({**OF_NODE, "since": NOON, "message": ""})
GONE_AT_ONCE = NodePreempted.model_validate(OF_NODE)


@pytest.mark.parametrize(
    ("events", "gives_way"),
    [
        ((ASKED,), True),
        ((ASKED, KEPT), False),
        ((ASKED, KEPT, ASKED), True),
        ((ASKED, WARNED, KEPT), True),
        ((ASKED, KEPT, WARNED), True),
        ((ASKED, GONE_AT_ONCE, KEPT), True),
        ((ASKED, KEPT, GONE_AT_ONCE), True),
        ((GONE_AT_ONCE, ASKED, KEPT), True),
        ((WARNED, ASKED, KEPT), True),
        ((KEPT,), False),
        ((ASKED, WARNED, None), False),
        ((ASKED, None), False),
    ],
)
def test_only_a_preemption_that_has_not_begun_is_taken_back(
    events: tuple[GivesWay | None, ...], gives_way: bool
) -> None:
    keys = Map[MachineKey, bool]()
    for event in events:
        keys = fold_preemption(keys, KEY, event)

    assert (KEY in keys) is gives_way
