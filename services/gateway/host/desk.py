"""Gives answers out: decodes queries, waits where they ask for it, and answers from the model."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from gateway.admission import Admitted, admit
from gateway.answers import (
    answer_explain,
    answer_get,
    answer_list,
    answer_unchanged,
    answer_users,
    answer_watch,
    find_refusal,
)
from gateway.budgets import Rate
from gateway.followers import Followers
from gateway.host.door import Door, identify, refuse_flood
from gateway.host.history import History
from gateway.host.intake import Arrival, Reply
from gateway.host.members import MembersFile
from gateway.host.past.answering import Past, is_past
from gateway.host.reading import ModelReader
from gateway.host.settings import GatewaySettings
from gateway.peers import Peers
from gateway.refusals import Refusal
from nodepool.client.errors import NoOutcome, Refused
from nodepool.contract.actors import Actor
from nodepool.contract.buckets import Bucket
from nodepool.contract.door import door_of
from nodepool.contract.events import CapacityFound
from nodepool.contract.keys import UNNAMED, token
from nodepool.contract.queries import (
    Audit,
    Events,
    Explain,
    FindCapacity,
    Get,
    List,
    Messages,
    Query,
    Users,
    Watch,
    query_in,
)

if TYPE_CHECKING:
    from nodepool.client.sender import PendingOutcomes

CATCH_UP_S: Final = 5.0
"""How long a query waits for the position that it asks for, in seconds."""
OUTCOME_S: Final = 10.0
"""How long the capacity service may take to answer, in seconds."""
SELECTOR_COST: Final = 5.0
EXPLAIN_COST: Final = 5.0
EVENTS_COST: Final = 10.0
MESSAGES_COST: Final = 2.0
"""What a query with a selector and these queries count against the rate; all others count 1."""
COST_BYTES: Final = 64 << 10
"""An answer counts 1 more per this many bytes: a slow reader of large answers delays others."""
_SHOWN: Final[tuple[Bucket, ...]] = ("nodepools", "nodes", "quotas", "clusters")


class Desk:
    """Answers queries. clock: seconds of a monotonic clock."""

    def __init__(
        self,
        settings: GatewaySettings,
        members: MembersFile,
        reader: ModelReader,
        door: Door,
        past: Past,
        clock: Callable[[], float],
    ) -> None:
        self._members, self._reader, self._door, self._clock = members, reader, door, clock
        self.past = past
        self._rate = Rate(settings.queries_per_second, settings.queries_burst)
        self._watches_max = settings.watches
        self._watches: Counter[str] = Counter()
        self._peers = Peers()
        self.history = History()
        self._followers = Followers()
        self.outcomes: PendingOutcomes[CapacityFound] | None = None
        self.is_ready = False

    def list_agents(self) -> dict[str, object]:
        """Return the release of each agent that follows its cluster, by `<org>/<cluster>`."""
        at_work = self._followers.at_work(self._clock()).items()
        return {"agents": {"/".join(place): release for place, release in at_work}}

    async def answer(self, arrival: Arrival) -> Reply:
        """Return the answer to a query, or a refusal."""
        if refusal := self._charge(arrival.org, 1.0):
            return refusal
        actor = identify(arrival, self._members)
        if isinstance(actor, Refusal):
            return actor
        name = arrival.message.subject.rpartition(".")[2]
        if arrival.message.subject.count(".") != _SUBJECT_DOTS:
            name = arrival.message.subject
        query = query_in(name, arrival.message.data)
        if isinstance(query, tuple):
            field, cause = query
            error = f"{field} {cause}" if field and field != "subject" else cause
            return Refusal("Invalid", error, "see the queries in shared/asyncapi.yaml", field)
        if refusal := find_refusal(query, actor) or self._charge(actor.org, _cost_of(query) - 1):
            return refusal
        if not self.is_ready:
            return Refusal("Unavailable", "the gateway is starting", "ask again in a moment")
        if is_past(query):
            charge = partial(self._charge, actor.org)
            reply = await self.past.answer(query, actor.org, arrival.message.data, charge)
        else:
            reply = await self._answer(query, actor)
        if isinstance(reply, bytes):
            self._rate.owe(actor.org, self._clock(), len(reply) / COST_BYTES)
        return reply

    def _charge(self, org: str, cost: float) -> Refusal | None:
        """Count against the rate of an organisation; return a refusal if that is used up."""
        wait_s = self._rate.take(org, self._clock(), cost)
        if not wait_s:
            return None
        return refuse_flood(wait_s, "its queries per second", "QUERIES_PER_SECOND")

    async def _answer(self, query: Query, actor: Actor) -> Reply:
        org, model = actor.org, self._reader.model
        match query:
            case Get() | List():
                position = await self._show((query.kind,), query)
                if isinstance(position, Refusal):
                    return position
                if isinstance(query, Get):
                    return answer_get(model, org, query, position)
                return answer_list(model, org, query, position)
            case Watch():
                return await self._watch(query, org)
            case Explain():
                position = await self._show(_SHOWN, query)
                if isinstance(position, Refusal):
                    return position
                return answer_explain(model, org, query, position, datetime.now(UTC), self._peers)
            case Events() | Messages() | Audit():
                return await self._read(query, actor)
            case FindCapacity():
                return await self._find_capacity(actor, query)
            case Users():
                return answer_users(self._members.of(org), self._position("clusters"))
        raise TypeError(f"{type(query).__name__} has no answer")

    async def _read(self, query: Events | Messages | Audit, actor: Actor) -> Reply:
        """Return a page of the log, and note an agent that follows its cluster."""
        if actor.cluster and isinstance(query, Messages):
            self._followers.note((actor.org, actor.cluster), query.release, self._clock())
        return await self.history.read(query, actor.org)

    async def _show(
        self, buckets: tuple[Bucket, ...], query: Get | List | Explain
    ) -> int | Refusal:
        """Return the position that the model shows, at least the one that is asked for."""
        position = query.not_older_than
        if query.current:
            end = await self._reader.find_end()
            if isinstance(end, Refusal):
                return end
            position = max(position, end)
        for bucket in buckets if position else ():
            refusal = await self._reader.show(bucket, position, CATCH_UP_S)
            if refusal is not None:
                return refusal
        return self._position(*buckets)

    def _position(self, *buckets: Bucket) -> int:
        """Return what the model is known to show, and have it proved again for the next query."""
        for bucket in buckets:
            self._reader.refresh(bucket)
        return min(self._reader.shown.get(bucket, 0) for bucket in buckets)

    async def _watch(self, query: Watch, org: str) -> Reply:
        if self._watches[org] >= self._watches_max:
            error = f"{self._watches[org]} queries of {org} wait for changes"
            return Refusal("TooManyRequests", error, "end another watch first")
        ends = self._clock() + query.wait_seconds
        self._watches[org] += 1
        try:
            while True:
                position = self._position(query.kind)
                answer = answer_watch(self._reader.model, org, query, position)
                if answer is not None:
                    return answer
                left_s = ends - self._clock()
                if left_s <= 0:
                    return answer_unchanged(self._reader.model, query, position)
                await self._reader.bells.wait((query.kind, org), left_s)
        finally:
            self._watches[org] -= 1
            if not self._watches[org]:
                del self._watches[org]

    async def _find_capacity(self, actor: Actor, query: FindCapacity) -> Reply:
        """Send the command FindCapacity for the sender, and return what answers it."""
        outcomes = self.outcomes
        if outcomes is None:
            return Refusal("Unavailable", "the gateway is starting", "ask again in a moment")
        place = ".".join((token(actor.org), UNNAMED, UNNAMED))
        subject = door_of(f"np.cmd.{place}.{FindCapacity.__name__}")
        content = query.model_dump_json(by_alias=True, exclude={"at"}).encode()
        admitted = admit(subject, content, {}, actor, str(uuid4()))
        if isinstance(admitted, Admitted):
            admitted = self._door.charge(admitted)
        if isinstance(admitted, Refusal):
            return admitted
        future = outcomes.expect(admitted.id)
        try:
            position = await self._door.store(admitted)
            if isinstance(position, Refusal):
                return position
            await asyncio.wait((future,), timeout=OUTCOME_S)
            found = future.result() if future.done() else NoOutcome("")
        finally:
            outcomes.forget(admitted.id)
        match found:
            case CapacityFound():
                zones = [zone.model_dump(mode="json") for zone in found.zones]
                return json.dumps({"position": position, "zones": zones}).encode()
            case Refused():
                return Refusal("Invalid", found.message, "correct the field", found.field)
        error = f"the capacity service has not answered within {OUTCOME_S:g} s"
        return Refusal("Unavailable", error, "ask again in a moment")


_SUBJECT_DOTS: Final = 4
"""How many dots `np.door.api.<org>.<Query>` has."""


def _cost_of(query: Query) -> float:
    match query:
        case Explain():
            return EXPLAIN_COST
        case Events() | Audit():
            return EVENTS_COST
        case Messages():
            return MESSAGES_COST
        case List() | Watch() if query.label_selector or query.field_selector:
            return SELECTOR_COST
    return 1.0
