"""What the lifecycle service shows of itself in metrics."""

from collections.abc import Iterator
from typing import Final, get_args

from immutables import Map

from lifecycle.known import Report, State
from lifecycle.requests import PhaseCommand
from nodepool.contract.metrics import REFUSED_NODE_MOVES, Sample
from nodepool.contract.model import NodePhase

MESSAGES: Final = tuple(sorted(kind.__name__ for kind in get_args(Report | PhaseCommand)))
"""The messages that ask a Node for a move."""


def gauges(state: State) -> Iterator[Sample]:
    """How often a message asked for a move that cannot follow on the phase its Node was in."""
    for phase in NodePhase:
        counts = state.refused.get(phase.value, Map[str, int]())
        for message in MESSAGES:
            yield Sample(REFUSED_NODE_MOVES, (phase.value, message), counts.get(message, 0))
