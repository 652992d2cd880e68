"""What is likely in a simulation: each profile makes another subject so."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nodepool.engine.bounds import OUTPUTS_MAX

ACTIONS: Mapping[str, int] = {
    "apply": 14,
    "scale": 18,
    "scale_down_and_up": 6,
    "delete": 4,
    "change_limit": 5,
    "delete_limit": 1,
    "batch": 8,
    "line_up": 1,
    "stay_wrong": 1,
    "down_and_up": 3,
    "shrink_and_preempt": 3,
    "interfere": 3,
    "delete_in_some_phase": 1,
    "relabel": 4,
    "retaint": 1,
    "add": 3,
    "break_one": 6,
    "repair_one": 6,
    "run_pod": 22,
    "stop_pod": 14,
    "preempt": 14,
    "resend": 9,
    "send_malformed": 3,
    "bug": 4,
    "autoscale": 0,
    "request_pod": 0,
    "withdraw_pod": 0,
    "create_pod": 0,
    "delete_pod": 0,
    "lock": 0,
    "unlock": 0,
    "reclaim": 0,
    "give_back": 0,
    "acknowledge": 0,
    "ask": 0,
    "reserve": 0,
    "fail": 0,
    "allow": 0,
    "want_racks": 0,
    "add_racks": 0,
    "break_rack": 0,
    "repair_rack": 0,
    "change_rack_limit": 0,
    "fall_silent": 0,
    "answer_again": 0,
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
    domains: whether those racks have an NVLink domain each.
    lacks_domains: whether the machines of the first three racks have no NVLink domain.
    rack_limits: what their limit is drawn from.
    outputs_max: how many outputs of one input the engine stores at most.
    faults: in which ways machines fail.
    boot_s: how long machines take to boot, in seconds.
    attacks: how likely a sender that means harm acts in a step.
    hurries: how likely it is in a step that all services catch up, but for one at most.
    late: the services that this may be; all of them where none is named.
    autoscaled: whether the autoscaler runs.
    verify_s: how long machines are verified after a boot, in seconds.
    bugs: the services that have bugs for a while; their failures show in a condition.
    images: whether NodePools change the image that their Nodes boot with.
    wipe_s: how long machines are wiped after a stay, in seconds.
    """

    steps: int = 4_500
    actions: Mapping[str, int] = field(default_factory=dict)
    targets: tuple[int, ...] = (0, 1, 2, 3, 4, 6, 8, 9)
    limits: tuple[int, ...] = (0, 1, 3, 5, 6, 9, 12)
    machines: int = 9
    reads: tuple[int, ...] = (1, 2, 5, 20, 60)
    racks: bool = False
    domains: bool = False
    lacks_domains: bool = False
    rack_limits: tuple[int, ...] = (36, 54)
    outputs_max: int = OUTPUTS_MAX
    faults: tuple[str, ...] = ("boot", "registration", "silence", "hang")
    boot_s: tuple[int, ...] = (0, 0, 30, 400)
    attacks: float = 0.0
    hurries: float = 0.0
    late: tuple[str, ...] = ()
    autoscaled: bool = False
    verify_s: int = 0
    bugs: tuple[str, ...] = ("quota", "capacity", "allocator", "lifecycle")
    images: bool = False
    wipe_s: int = 0

    def weight(self, action: str) -> int:
        """How likely an action is."""
        return self.actions.get(action, ACTIONS[action])


ORDINARY = Profile()
CROWDED = Profile(
    machines=4,
    limits=(2, 3, 5, 8),
    actions={
        "change_limit": 12,
        "relabel": 10,
        "batch": 16,
        "line_up": 6,
        "run_pod": 8,
        "stop_pod": 8,
    },
)
"""Few machines and low limits, so that NodePools wait for both."""
SPOT = Profile(
    actions={
        "preempt": 30,
        "scale": 30,
        "scale_down_and_up": 12,
        "shrink_and_preempt": 20,
        "run_pod": 30,
    }
)
"""Many preemptions, while NodePools shrink."""
FAILING = Profile(actions={"bug": 20, "break_one": 16, "repair_one": 12, "change_limit": 10})
"""Checks fail, and machines."""
RACKS = Profile(racks=True, steps=6_000, reads=(5, 20, 60, 200))
"""Machines that come in racks of 18."""
NVLINK = replace(
    RACKS,
    domains=True,
    faults=("boot", "registration"),
    actions={
        "want_racks": 40,
        "add_racks": 2,
        "break_rack": 12,
        "repair_rack": 10,
        "add": 1,
        "change_limit": 2,
    },
)
"""Racks with an NVLink domain each, which lose machines and get them back."""
FEW_RACKS = replace(
    NVLINK,
    steps=3_000,
    rack_limits=(144,),
    actions={**NVLINK.actions, "want_racks": 120, "add_racks": 12, "break_rack": 24},
)
"""NodePools want more racks than there are."""
LENT_RACKS = replace(
    FEW_RACKS,
    lacks_domains=True,
    rack_limits=(36, 72, 144),
    actions={
        **FEW_RACKS.actions,
        "reserve": 120,
        "change_rack_limit": 20,
        "apply": 4,
        "scale": 2,
        "down_and_up": 0,
        "scale_down_and_up": 2,
        "run_pod": 10,
        "bug": 1,
    },
)
"""Nodes of racks, also of some without a domain, are often reserved for the control plane."""
SILENT = Profile(
    faults=("hang",),
    actions={
        "break_one": 30,
        "repair_one": 4,
        "scale": 24,
        "delete_in_some_phase": 8,
        "allow": 12,
        "fall_silent": 12,
        "answer_again": 10,
    },
)
"""Machines that join, and then do not answer, each by itself or a zone at once."""
SETTINGS = Profile(
    actions={"apply": 30, "relabel": 20, "stay_wrong": 20, "run_pod": 6, "stop_pod": 6}
)
"""Settings change, wrong ones among them."""
IMAGES = replace(
    SETTINGS,
    images=True,
    faults=("registration",),
    actions={**SETTINGS.actions, "ask": 30, "fail": 12, "allow": 12},
)
"""Images change too, while Nodes are rebooted."""
SMALL_STEPS = Profile(
    machines=26,
    targets=(0, 1, 14, 20, 24),
    limits=(20, 26),
    reads=(5, 20, 60, 200),
    actions={"apply": 8, "scale": 30, "scale_down_and_up": 2, "down_and_up": 20, "bug": 0},
    outputs_max=12,
)
"""NodePools that lose and get more Nodes than one step may name."""
AUTOSCALED = Profile(
    autoscaled=True,
    faults=("boot", "registration"),
    machines=14,
    limits=(6, 12, 14),
    actions={
        "autoscale": 30,
        "request_pod": 70,
        "withdraw_pod": 70,
        "apply": 6,
        "scale": 4,
        "scale_down_and_up": 1,
        "down_and_up": 0,
        "batch": 2,
        "delete": 1,
        "retaint": 0,
        "change_limit": 2,
        "run_pod": 4,
        "stop_pod": 8,
        "preempt": 5,
        "bug": 1,
    },
)
"""NodePools follow Pods that wait and Nodes that are idle."""
UNHEALTHY = Profile(
    faults=("boot", "registration", "verification"),
    verify_s=60,
    actions={"ask": 30, "fail": 40, "allow": 20, "bug": 1, "batch": 2, "repair_one": 16},
)
"""Nodes have problems, and commands ask for them."""

GIVING_WAY = Profile(
    machines=8,
    faults=("boot", "registration", "silence", "hang"),
    limits=(6, 9, 12),
    targets=(0, 1, 2, 3, 4, 6),
    actions={
        "reclaim": 14,
        "give_back": 12,
        "acknowledge": 14,
        "scale": 30,
        "run_pod": 30,
        "preempt": 8,
        "batch": 4,
        "shrink_and_preempt": 6,
        "bug": 1,
    },
)
"""Spot Nodes give way to NodePools that are short, and to an operator."""
MIXED = replace(
    GIVING_WAY,
    autoscaled=True,
    verify_s=60,
    actions={
        **GIVING_WAY.actions,
        "ask": 8,
        "fail": 24,
        "allow": 8,
        "repair_one": 12,
        "lock": 10,
        "unlock": 8,
        "create_pod": 10,
        "delete_pod": 4,
        "autoscale": 6,
        "request_pod": 12,
        "withdraw_pod": 12,
    },
)
"""The same, while Nodes have problems and locks, and NodePools follow Pods that wait."""


WIPED = replace(
    GIVING_WAY,
    faults=("boot", "wipe", "wipe", "wipe-hang"),
    wipe_s=60,
    actions={
        **GIVING_WAY.actions,
        "break_one": 4,
        "repair_one": 30,
        "delete": 8,
        "preempt": 20,
        "scale_down_and_up": 20,
    },
)
"""The same, with machines that are wiped between their stays, which fails at times."""
WIPED_RACKS = replace(NVLINK, faults=("boot", "registration", "wipe"), wipe_s=120)
"""Racks whose machines are wiped between their stays."""


SLURM = Profile(
    faults=("boot", "registration", "hang"),
    limits=(6, 9, 12),
    actions={
        "create_pod": 40,
        "delete_pod": 14,
        "lock": 30,
        "unlock": 24,
        "run_pod": 12,
        "break_one": 3,
        "preempt": 10,
        "batch": 2,
        "bug": 2,
    },
)
"""Pods wait for Nodes, and Slurm jobs lock them."""


ON_THEIR_WAY = Profile(
    autoscaled=True,
    faults=("boot", "registration", "hang"),
    machines=14,
    limits=(6, 12, 14),
    boot_s=(0, 900),
    verify_s=900,
    actions={
        "autoscale": 30,
        "request_pod": 30,
        "withdraw_pod": 30,
        "ask": 40,
        "fail": 20,
        "allow": 20,
        "run_pod": 20,
        "stop_pod": 8,
        "break_one": 6,
        "repair_one": 16,
        "apply": 6,
        "scale": 6,
        "retaint": 0,
        "batch": 2,
        "bug": 1,
    },
)
"""Nodes that boot, reboot, are verified and reserved for long, in NodePools that follow Pods."""


ATTACKS = 0.01
"""How likely an attack is, where there is a sender that means harm."""


HURRIES = 0.01
"""How likely services catch up, where they do."""


def profile_of(seed: int) -> Profile:
    """The profile of a seed: half are ordinary, odd ones are attacked, each third one hurries."""
    profile = _profile_of(seed)
    attacks, hurries = ATTACKS if seed % 2 else 0.0, HURRIES if seed % 3 == 0 else 0.0
    return replace(profile, attacks=attacks, hurries=hurries)


def _profile_of(seed: int) -> Profile:
    rare = {0: RACKS, 1: SILENT, 2: SMALL_STEPS, 3: SETTINGS}
    of_nodes = {0: SLURM, 1: UNHEALTHY, 2: ON_THEIR_WAY}
    recent = {0: AUTOSCALED, 1: GIVING_WAY, 2: NVLINK, 3: MIXED}
    of_machines = {1: WIPED, 2: LENT_RACKS, 3: WIPED_RACKS}
    often = {
        1: of_nodes[seed // 10 % 3],
        3: CROWDED,
        4: recent[seed // 10 % 4],
        5: SPOT,
        7: FAILING,
        6: of_machines.get(seed // 10 % 4, ORDINARY),
        8: CROWDED,
        9: rare[seed // 10 % 4],
    }
    return often.get(seed % 10, ORDINARY)
