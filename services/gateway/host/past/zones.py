"""The zones that likely had some spot Nodes at a moment."""

import json
from importlib import import_module
from typing import Final

from gateway.refusals import Refusal
from nodepool.client.past.history import History
from nodepool.client.past.replicas import replica_at
from nodepool.contract import commands
from nodepool.contract.events import CapacityFound, CommandAccepted, CommandRefused
from nodepool.contract.queries import FindCapacity
from nodepool.engine.past import state_of

FINDER: Final = "capacity"
"""The service that answers in the present, and whose function answers here."""


async def find_zones(history: History, query: FindCapacity, org: str) -> bytes:
    """Return the zones as the service of capacity knew them at the moment, best first."""
    service = import_module(f"{FINDER}.decide").SERVICE
    answer = import_module(f"{FINDER}.finder").answer
    state = state_of(await replica_at(history, service))
    command = commands.FindCapacity(org=org, selections=query.selections)
    found: CapacityFound | CommandAccepted | CommandRefused = next(answer(state, command))
    if isinstance(found, CommandRefused):
        return Refusal("Invalid", found.message, "correct the field", found.field).content
    assert isinstance(found, CapacityFound), "the service says what it has found"
    zones = [zone.model_dump(mode="json") for zone in found.zones]
    return json.dumps({"position": history.position, "zones": zones}).encode()
