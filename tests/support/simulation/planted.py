"""Profiles in which faults of services for Nodes show soon, once they are put in."""

from dataclasses import replace

from support.simulation.profile import SETTINGS, SILENT, SMALL_STEPS, SPOT

FAULTS = ("boot", "registration")
CALM = {"bug": 0, "change_limit": 0, "delete": 0, "delete_limit": 0, "relabel": 0, "resend": 0}
"""Less of what is not the subject."""
PREEMPTED = replace(
    SPOT,
    steps=3_500,
    machines=14,
    limits=(9, 12),
    targets=(1, 2, 3, 4, 6),
    faults=FAULTS,
    hurries=0.02,
    actions={**SPOT.actions, **CALM, "shrink_and_preempt": 60},
)
WRONG = replace(SETTINGS, steps=3_000, faults=FAULTS)
LARGE = replace(SMALL_STEPS, steps=3_000, faults=FAULTS)
SILENCED = replace(SILENT, steps=3_000)
REWRITTEN = replace(LARGE, targets=(20, 24), actions={**LARGE.actions, "apply": 60, "scale": 10})
KEPT = replace(
    PREEMPTED,
    late=("lifecycle",),
    actions={
        **CALM,
        "shrink_and_preempt": 40,
        "interfere": 80,
        "scale": 12,
        "preempt": 0,
        "batch": 0,
        "apply": 4,
        "run_pod": 6,
        "scale_down_and_up": 0,
    },
)
DELETED = replace(
    PREEMPTED,
    actions={
        **CALM,
        "delete_in_some_phase": 20,
        "shrink_and_preempt": 30,
        "scale": 30,
        "batch": 30,
        "run_pod": 30,
    },
)
SHRUNK = replace(
    PREEMPTED,
    actions={
        **CALM,
        "down_and_up": 20,
        "interfere": 60,
        "scale": 8,
        "batch": 0,
        "preempt": 0,
        "shrink_and_preempt": 0,
        "scale_down_and_up": 0,
        "run_pod": 10,
        "apply": 2,
    },
)
"""A NodePool wants Nodes again that are on their way out, and few other things happen."""
OVERTAKEN = replace(
    PREEMPTED,
    actions={
        **CALM,
        "shrink_and_preempt": 20,
        "interfere": 30,
        "scale": 14,
        "preempt": 2,
        "scale_down_and_up": 0,
        "batch": 0,
        "down_and_up": 0,
        "run_pod": 6,
        "stop_pod": 20,
        "apply": 4,
        "send_malformed": 20,
    },
)
"""Idle Nodes leave for a scale-down at about the time at which they are preempted."""
