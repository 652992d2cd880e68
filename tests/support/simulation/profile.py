"""What is likely in a simulation: each profile makes another subject so."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ACTIONS: Mapping[str, int] = {
    "apply": 14,
    "scale": 18,
    "scale_down_and_up": 6,
    "delete": 4,
    "change_limit": 5,
    "batch": 10,
    "relabel": 4,
    "add": 3,
    "break_one": 6,
    "repair_one": 6,
    "run_pod": 22,
    "stop_pod": 14,
    "preempt": 14,
    "resend": 9,
    "send_malformed": 3,
    "bug": 4,
}
"""How likely each action is, compared with the others."""


@dataclass(frozen=True)
class Profile:
    """How likely each thing is.

    steps: how many steps a simulation takes before the faults stop.
    actions: other weights than those of `ACTIONS`, by name.
    targets, limits: what `targetNodes` and limits are drawn from.
    machines: how many machines of the common type there are at first.
    reads: how many entries a replica reads in one step.
    racks: whether there is a cluster whose machines come in racks.
    """

    steps: int = 7_000
    actions: Mapping[str, int] = field(default_factory=dict)
    targets: tuple[int, ...] = (0, 1, 2, 3, 4, 6, 8, 9)
    limits: tuple[int, ...] = (0, 1, 3, 5, 6, 9, 12)
    machines: int = 9
    reads: tuple[int, ...] = (1, 2, 5, 20, 60)
    racks: bool = False

    def weight(self, action: str) -> int:
        """How likely an action is."""
        return self.actions.get(action, ACTIONS[action])


ORDINARY = Profile()
CROWDED = Profile(
    machines=4,
    limits=(2, 3, 5, 8),
    actions={"change_limit": 12, "relabel": 10, "batch": 20, "run_pod": 8, "stop_pod": 8},
)
"""Few machines and low limits, so that NodePools wait for both."""
SPOT = Profile(actions={"preempt": 40, "scale": 30, "scale_down_and_up": 12, "run_pod": 30})
"""Many preemptions, while NodePools shrink."""
FAILING = Profile(actions={"bug": 20, "break_one": 16, "repair_one": 12, "change_limit": 10})
"""Checks fail, and machines."""
RACKS = Profile(racks=True, steps=9_000, reads=(5, 20, 60, 200))
"""Machines that come in racks of 18."""
LARGE = Profile(
    steps=6_000,
    machines=1_050,
    targets=(0, 1, 20, 940, 1_000, 1_030),
    limits=(1_000, 1_050, 1_200),
    reads=(20, 60, 400, 2_000),
    actions={"apply": 8, "preempt": 4, "batch": 4, "delete": 1, "change_limit": 1, "bug": 0},
)
"""A NodePool of about a thousand Nodes, more than one commit can hold."""


def profile_of(seed: int) -> Profile:
    """The profile of a seed: a quarter of the seeds is not ordinary, one in fifty large."""
    if seed % 50 == 49:
        return LARGE
    return {3: CROWDED, 5: SPOT, 7: FAILING, 9: RACKS if seed % 20 == 19 else CROWDED}.get(
        seed % 10, ORDINARY
    )
