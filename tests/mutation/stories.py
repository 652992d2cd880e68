"""The packages whose decisions are changed, and the tests that have to notice."""

from collections.abc import Sequence

PLACEMENT = (
    "label_index",
    "ranking",
    "racks",
    "turns_for_racks",
    "waits",
    "inventory",
    "affinity",
    "placement_laws",
)
ALLOCATOR = ("allocator", "allocator_choose", "allocator_deletion", "allocator_give_way")
QUOTA = ("quota", "quota_commands", "quota_failures", "quota_laws", "quota_line", "quota_numbers")
UNIT = {
    "services/lifecycle": ("lifecycle", "node_states", "node_failures"),
    "shared/nodepool/placement": (*PLACEMENT, "allocator_choose", "capacity"),
    "services/allocator": (*ALLOCATOR, "racks", "allocator_scale_down", "affinity_cost"),
    "services/quota": (*QUOTA, "quota_release", "quota_waiting"),
    "services/preemption": ("preemption", "preemption_list", "timetable"),
}
"""The tests of the parts of each package, without `tests/unit/test_`."""
FLOW = (
    *("nodes", "commanded_nodes", "unhealthy_nodes", "silent_nodes", "kubernetes_nodes", "locks"),
    *("pods", "pool_pods", "scale_up", "scale_down", "deletion", "capacity", "racks", "races"),
    *("quota", "refusals", "repeated_commands", "internal_errors", "broken_pools", "reservations"),
    *("preemption", "acknowledged_preemption", "reclaim", "spot_gives_way", "fleet_metrics"),
)
"""Tests of all services over a log in memory, without `tests/flow/test_`."""
FOLDERS: Sequence[str] = tuple(UNIT)
"""The packages whose decisions are changed."""


def tests_of(folder: str) -> Sequence[str]:
    """Return the files of tests of the parts of a package."""
    return [f"tests/unit/test_{name}.py" for name in UNIT[folder]]


TESTS: Sequence[str] = (
    *dict.fromkeys(file for folder in FOLDERS for file in tests_of(folder)),
    *(f"tests/flow/test_{name}.py" for name in FLOW),
)
"""All files of tests; those that are left out here take long, or look at other decisions."""
