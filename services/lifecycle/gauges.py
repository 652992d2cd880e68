"""The metrics about the state of the lifecycle service."""

from collections.abc import Iterator
from typing import Final, get_args

from immutables import Map

from lifecycle.areas import is_excused
from lifecycle.changes import BootReport
from lifecycle.commands import PhaseCommand
from lifecycle.known import State
from nodepool.contract.keys import machine_parts
from nodepool.contract.metrics import REFUSED_NODE_MOVES, SILENT_NODES, Sample
from nodepool.contract.model import NodePhase

MESSAGES: Final = tuple(sorted(kind.__name__ for kind in get_args(BootReport | PhaseCommand)))
"""The names of the messages that can move a Node to another phase."""


def gauges(state: State) -> Iterator[Sample]:
    """How many Nodes are silent, and which moves of Nodes were refused in which phase, how often.

    A cluster without a silent Node has no series.
    """
    for name, area in state.areas.items():
        org, _, cluster = name.partition("/")
        if cluster and area.silent:
            zone, _ = machine_parts(next(iter(area.silent)))
            is_wide = "true" if is_excused(state.areas, (zone, name)) else "false"
            yield Sample(SILENT_NODES, (zone, org, cluster, is_wide), len(area.silent))
    for phase in NodePhase:
        counts = state.refused.get(phase.value, Map[str, int]())
        for message in MESSAGES:
            yield Sample(REFUSED_NODE_MOVES, (phase.value, message), counts.get(message, 0))
