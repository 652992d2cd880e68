"""Takes commands and observations in: checks them, and stores them in the log."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from gateway.admission import Admitted, admit
from gateway.budgets import Rate, Storage
from gateway.host.counting import COST
from gateway.host.intake import Arrival, Reply
from gateway.host.members import MembersFile
from gateway.host.settings import GatewaySettings
from gateway.model import ReadModel
from gateway.refusals import Refusal
from nodepool.contract.actors import Actor, sender_in
from nodepool.contract.keys import UNNAMED
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal

if TYPE_CHECKING:
    from nodepool.nats.log.gathering import Gatherer

STORE_S: Final = 5.0
"""How long the log may take to acknowledge a message, in seconds."""
MESSAGE_BYTES: Final = 200
"""What the log stores of a message beside its content and subject, in bytes."""
NEW_OBJECT_BYTES: Final = 32 << 10
"""What a message about an unknown object costs in addition: the server keeps each subject in memory
until the log is trimmed."""
AGAIN: Final = "send it again with the same id: it is not done twice"


def identify(arrival: Arrival, members: MembersFile) -> Actor | Refusal:
    """Return the sender of a message as the server vouches for it, or why it is unknown."""
    sender = sender_in(arrival.request_info)
    if sender is None:
        error = "the server does not say who has sent this"
        return Refusal("Forbidden", error, "send well-formed headers, or none")
    actor = members.actor_of(sender)
    if actor is None or actor.org != arrival.org:
        error = f"the user is no member of {arrival.org}"
        return Refusal("Forbidden", error, "ask the operator for credentials")
    return actor


def refuse_flood(wait_s: float, what: str, variable: str) -> Refusal:
    """Return the refusal of what exceeds a budget."""
    fix = f"send again in {wait_s:.2g} s, or ask the operator to raise NODEPOOL_GATEWAY_{variable}"
    return Refusal("TooManyRequests", f"the organisation has used up {what}", fix)


class Door:
    """The way in of commands and observations.

    clock: seconds of a monotonic clock.
    storage: how many bytes each organisation has stored.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        members: MembersFile,
        model: ReadModel,
        clock: Callable[[], float],
    ) -> None:
        self._members = members
        self._model = model
        self._clock = clock
        self._rate = Rate(settings.messages_per_second, settings.messages_burst)
        self.storage = Storage(settings.bytes_per_hour)
        self.publisher: Gatherer | None = None

    async def take(self, arrival: Arrival) -> Reply:
        """Store a message; return the acknowledgement with id and position, or a refusal."""
        admitted = self._admit(arrival)
        if isinstance(admitted, Refusal):
            return admitted
        position = await self.store(admitted)
        if isinstance(position, Refusal):
            return position
        return json.dumps({"id": admitted.id, "position": position}).encode()

    async def store(self, admitted: Admitted) -> int | Refusal:
        """Publish a message; return its position once the log has acknowledged it."""
        publisher = self.publisher
        if publisher is None:
            return _refuse_unstored(admitted, "the gateway is not connected")
        try:
            async with asyncio.timeout(STORE_S):
                cost = {COST: str(admitted.cost)}
                return await publisher.publish(admitted.subject, admitted.content, cost)
        except (Conflict, ServerRefusal) as error:
            return _refuse_unstored(admitted, f"it is not stored: {error}")
        except (InDoubt, TimeoutError):
            return _refuse_unstored(admitted, "it may or may not be stored: no reply in time")

    def _admit(self, arrival: Arrival) -> Admitted | Refusal:
        # On the subjects of an organisation, the accounts let in messages of its users alone.
        if wait_s := self._rate.take(arrival.org, self._clock()):
            return refuse_flood(wait_s, "its messages per second", "MESSAGES_PER_SECOND")
        actor = identify(arrival, self._members)
        if isinstance(actor, Refusal):
            return actor
        message = arrival.message
        headers = message.headers or {}
        admitted = admit(message.subject, message.data, headers, actor, str(uuid4()))
        return admitted if isinstance(admitted, Refusal) else self.charge(admitted)

    def charge(self, admitted: Admitted) -> Admitted | Refusal:
        """Return a message whose bytes the storage budget of its organisation covers."""
        size = len(admitted.content) + len(admitted.subject) + MESSAGE_BYTES
        size += 0 if self._is_known(admitted) else NEW_OBJECT_BYTES
        if wait_s := self.storage.take(admitted.address.path[0], self._clock(), size):
            return refuse_flood(wait_s, "its stored bytes per hour", "BYTES_PER_HOUR")
        return replace(admitted, cost=size)

    def _is_known(self, admitted: Admitted) -> bool:
        org, cluster, pool = admitted.address.path
        if pool != UNNAMED:
            return self._model.get("nodepools", org, f"{cluster}.{pool}") is not None
        return cluster == UNNAMED or self._model.get("clusters", org, cluster) is not None


def _refuse_unstored(admitted: Admitted, error: str) -> Refusal:
    return Refusal("Unavailable", error, AGAIN, id=admitted.id)
