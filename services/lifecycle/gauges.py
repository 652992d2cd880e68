"""What the lifecycle service shows of itself as gauges."""

from collections.abc import Iterator

from lifecycle.state import State
from nodepool.service import Sample


def gauges(state: State) -> Iterator[Sample]:
    """How often a message asked for a move that cannot follow on the phase its Node was in."""
    for phase, messages in sorted(state.refused.items()):
        for message, count in sorted(messages.items()):
            labels = {"phase": phase, "message": message}
            yield "nodepool_refused_node_moves", labels, float(count)
