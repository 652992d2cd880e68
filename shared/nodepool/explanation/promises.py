"""The promises of an advice, each with its words.

`foretell` decides what becomes of a Node, `nodepool.explanation.outlook` what the NodePool may do.
The simulation follows each advice and judges what it promises.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class Promise(Enum):
    """The effect of an advice some time after it was followed."""

    NOTHING = auto()
    """Only the effect that the instruction names; further effects cannot be known."""
    ENDS = auto()
    """The cause has ended, or concerns fewer Nodes than before."""
    CURED = auto()
    """The Node is still there, and has no problem."""
    CURED_OR_REPLACED = auto()
    """The Node has no problem, or another one is in its place."""
    REPLACED = auto()
    """Another Node is in the place of the Node."""
    REPLACED_IF_FITTING = auto()
    """The Node has left; another one is in its place if a free machine satisfies the affinity."""
    ENOUGH = auto()
    """The Node has left, and the NodePool has as many as it wants."""
    NOT_GRANTED = auto()
    """The Node has left, and the NodePool has as many as quota allows, and fewer than it wants."""
    RACK_LACKS = auto()
    """The Node has left, and its NVLink domain has fewer Nodes than before."""
    LACKS = auto()
    """The Node has left, and none comes before a machine is free."""
    LACKS_OR_SPOT = auto()
    """The Node has left, and none comes before a machine is free, or a spot Node gives one up."""
    LACKS_OR_LOWERED = auto()
    """The same as LACKS, if the autoscaler does not lower the target until then."""
    LACKS_OR_SPOT_OR_LOWERED = auto()
    """The same as LACKS_OR_SPOT, if the autoscaler does not lower the target until then."""
    MAY_LACK = auto()
    """The Node has left; whether one comes depends on which Node leaves first."""
    GONE = auto()
    """The Nodes have left."""
    REFILLED = auto()
    """The NodePool has as many Nodes as quota allows, or no machine is free."""
    REFILLED_IF_FITTING = auto()
    """The NodePool has as many Nodes as quota allows, or no free machine satisfies the affinity."""
    REFILLED_FOR_PODS = auto()
    """The same as REFILLED, with a target that the autoscaler lowers if no Pod waits."""
    REFILLED_FOR_PODS_IF_FITTING = auto()
    """The same as REFILLED_IF_FITTING, with a target that the autoscaler lowers if no Pod waits."""
    COUNTED = auto()
    """The Node counts as a Node of the NodePool again."""


WITH_AUTOSCALER: Final[Mapping[Promise, Promise]] = {
    Promise.LACKS: Promise.LACKS_OR_LOWERED,
    Promise.LACKS_OR_SPOT: Promise.LACKS_OR_SPOT_OR_LOWERED,
    Promise.REFILLED: Promise.REFILLED_FOR_PODS,
    Promise.REFILLED_IF_FITTING: Promise.REFILLED_FOR_PODS_IF_FITTING,
}
"""What may be promised instead if the autoscaler may give up Nodes that are missing."""

_LACKS: Final = (
    "no machine is free for it, so {pool} lacks the Node until one is freed, repaired or added"
)
_REFILLS: Final = "the NodePool refills by itself when machines are free"
_REFILLS_IF_FITTING: Final = (
    "the NodePool refills by itself when machines that satisfy the node affinity are free"
)
_WORDS: Final[Mapping[Promise, str]] = {
    Promise.CURED: "it is then cured",
    Promise.CURED_OR_REPLACED: "it is then cured or replaced",
    Promise.REPLACED: "it is then replaced",
    Promise.REPLACED_IF_FITTING: (
        "it is then replaced if a free machine satisfies the node affinity"
    ),
    Promise.ENOUGH: "it then leaves, and {pool} has enough Nodes without it",
    Promise.NOT_GRANTED: "it then leaves and is not replaced, as quota allows no more",
    Promise.RACK_LACKS: "its rack lacks it until its machine is repaired",
    Promise.LACKS: _LACKS,
    Promise.LACKS_OR_SPOT: f"{_LACKS}, or until a spot Node gives way",
    Promise.LACKS_OR_LOWERED: f"{_LACKS}, or until its autoscaler lowers the target",
    Promise.LACKS_OR_SPOT_OR_LOWERED: (
        f"{_LACKS}, or until a spot Node gives way or its autoscaler lowers the target"
    ),
    Promise.MAY_LACK: (
        "other Nodes that leave may get the free machines, so {pool} may lack the Node until "
        "another one is free"
    ),
    Promise.REFILLED: _REFILLS,
    Promise.REFILLED_IF_FITTING: _REFILLS_IF_FITTING,
    Promise.REFILLED_FOR_PODS: f"{_REFILLS}, if Pods wait for it by then",
    Promise.REFILLED_FOR_PODS_IF_FITTING: f"{_REFILLS_IF_FITTING}, if Pods wait for it by then",
}


def words(promise: Promise, pool: str) -> str:
    """Return the words of a promise about a NodePool; empty if the instruction says all of it."""
    return _WORDS.get(promise, "").format(pool=pool)
