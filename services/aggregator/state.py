"""The state of the aggregator after each event: the read model, and the figures beside it."""

from dataclasses import dataclass

from aggregator import Hears, changes
from aggregator.figures import state as measured
from aggregator.figures.state import Figures, Step
from aggregator.read_model import ReadModel
from nodepool.contract.invariants import IMPOSSIBLE, broken_rule
from nodepool.service import Context


@dataclass(frozen=True, slots=True)
class State:
    """The read model, and what is counted and measured for metrics."""

    read_model: ReadModel = ReadModel()
    figures: Figures = Figures()


def evolve(state: State, message: Hears, context: Context) -> State:
    """Return the state after an event; an impossible event changes only figures."""
    before = state.read_model
    rule = broken_rule(before, message)
    after = before if rule in IMPOSSIBLE else changes.evolve(before, message, context)
    step = Step(before, after, rule)
    return State(after, measured.evolve(state.figures, step, message, context))
