"""The states of Nodes and of machines, and which may follow which.

Phases are those of a Node in its NodePool; states are those that a machine goes through outside,
where https://docs.coreweave.com/products/cks/nodes/node-life-cycle names them.
"""

from collections.abc import Mapping
from typing import Final

from nodepool.contract.model import NodePhase
from nodepool.contract.words import Word


class MachineState(Word):
    """Where a machine is in the data centre; as a Node, and while it is free, in production."""

    ONBOARD = "onboard"
    SEATRIAL = "seatrial"
    ZAP = "zap"
    ZAP_FAIL = "zap-fail"
    TEST = "test"
    PRODUCTION = "production"
    TRIAGE = "triage"
    RMA = "rma"
    DEBUG = "debug"


_PHASE = NodePhase
PHASE_MOVES: Final[Mapping[NodePhase, tuple[NodePhase, ...]]] = {
    _PHASE.BOOTING: (_PHASE.VERIFYING, _PHASE.PRODUCTION, _PHASE.DELETED),
    _PHASE.VERIFYING: (_PHASE.PRODUCTION, _PHASE.CORDONED, _PHASE.REBOOTING, _PHASE.DELETED),
    _PHASE.PRODUCTION: (_PHASE.CORDONED, _PHASE.DRAINING, _PHASE.REBOOTING, _PHASE.DELETED),
    _PHASE.CORDONED: (
        _PHASE.VERIFYING,
        _PHASE.PRODUCTION,
        _PHASE.DRAINING,
        _PHASE.REBOOTING,
        _PHASE.DELETED,
    ),
    _PHASE.DRAINING: (
        _PHASE.VERIFYING,
        _PHASE.PRODUCTION,
        _PHASE.CORDONED,
        _PHASE.REBOOTING,
        _PHASE.DELETED,
    ),
    _PHASE.REBOOTING: (_PHASE.VERIFYING, _PHASE.PRODUCTION, _PHASE.CORDONED, _PHASE.DELETED),
    _PHASE.DELETED: (),
}
"""The phases that may follow each phase of a Node; each but the last may also stay as it is."""
_STATE = MachineState
STATE_MOVES: Final[Mapping[MachineState, tuple[MachineState, ...]]] = {
    _STATE.ONBOARD: (_STATE.SEATRIAL,),
    _STATE.SEATRIAL: (_STATE.ZAP,),
    _STATE.ZAP: (_STATE.TEST, _STATE.ZAP_FAIL, _STATE.PRODUCTION),
    _STATE.ZAP_FAIL: (_STATE.TRIAGE,),
    _STATE.TEST: (_STATE.PRODUCTION, _STATE.TRIAGE),
    _STATE.PRODUCTION: (_STATE.ZAP, _STATE.TRIAGE),
    _STATE.TRIAGE: (_STATE.RMA, _STATE.DEBUG),
    _STATE.RMA: (_STATE.ONBOARD,),
    _STATE.DEBUG: (_STATE.ONBOARD,),
}
"""The states that may follow each state of a machine."""


def may_follow(before: NodePhase, after: NodePhase) -> bool:
    """Return whether a Node in phase `before` may be in phase `after` next."""
    return after in PHASE_MOVES[before] or (after is before and bool(PHASE_MOVES[before]))


def states_table() -> str:
    """Return both tables in Markdown, as a page shows them."""
    lines = ["| Phase of a Node | May be followed by |", "| --- | --- |"]
    lines += [f"| {phase} | {_format_moves(moves)} |" for phase, moves in PHASE_MOVES.items()]
    lines += ["", "| State of a machine | May be followed by |", "| --- | --- |"]
    lines += [f"| {state} | {_format_moves(moves)} |" for state, moves in STATE_MOVES.items()]
    return "\n".join(lines)


def _format_moves(moves: tuple[NodePhase, ...] | tuple[MachineState, ...]) -> str:
    return ", ".join(move.value for move in moves) or "nothing"
