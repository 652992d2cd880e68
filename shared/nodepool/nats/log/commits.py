"""What the log stores for a service: its commits, and the `Wake` for what is due.

A commit is outputs and their commit record, stored as one atomic batch or not at all.

Atomic batches are described in
https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-50.md.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime

from nodepool.contract.log import CONTENT_TYPE
from nodepool.engine.proposal import Outgoing, Proposal
from nodepool.engine.replica import Replica
from nodepool.engine.wakes import wake, wake_subject
from nodepool.nats.log.api import (
    EXPECTED_SEQUENCE,
    REPLY_TIMEOUT_S,
    leaders_message,
    publish_event,
    stored_position,
)
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import MaxPayloadError, NatsError
from nodepool.service import I, O, S

MARK = "Nodepool-Replica"
"""The header of a commit record that says which process made the record."""


class Committer:
    """Stores the proposals of one service, one at a time.

    Only the condition on the commit record keeps an output from being stored twice. The messages of
    a batch have no `Nats-Msg-Id`: if another program had used an id before, the server would refuse
    the whole batch.

    mark: the value of the header MARK in its commit records; empty for no header.
    """

    def __init__(self, connection: BusClient, mark: str = "") -> None:
        self._connection = connection
        self._mark = {MARK: mark} if mark else {}

    async def commit(self, proposal: Proposal[S, I], *, is_cut: bool = False) -> int:
        """Store a commit and return the position of its commit record.

        is_cut: whether the previous commit record was cut from the log with its head. Then the
            condition is that the log holds no commit record of the service.

        Raises Conflict, InDoubt or ServerRefusal.
        """
        messages = proposal.messages
        expected = 0 if is_cut else proposal.expected_sequence
        # The mark comes first: readers skip headers that begin with the headers of a batch.
        headers = {**self._mark, EXPECTED_SEQUENCE: str(expected)}
        if not messages:
            return await self._publish_record(proposal, headers)
        batch = os.urandom(8).hex()
        await self._publish_outputs(batch, messages)
        last = {"Nats-Batch-Sequence": str(len(messages) + 1), "Nats-Batch-Commit": "1"}
        return await self._publish_record(proposal, {**headers, "Nats-Batch-Id": batch, **last})

    async def _publish_outputs(self, batch: str, messages: Sequence[Outgoing]) -> None:
        try:
            for number, message in enumerate(messages, 1):
                headers = {
                    "Nats-Batch-Id": batch,
                    "Nats-Batch-Sequence": str(number),
                    "Content-Type": CONTENT_TYPE,
                }
                await self._connection.publish(message.subject, message.content, headers=headers)
        except MaxPayloadError as error:
            raise ServerRefusal(0, "an output is larger than the server's max_payload") from error
        except (NatsError, OSError) as error:
            raise InDoubt(f"the batch was not sent whole: {error}") from error

    async def _publish_record(self, proposal: Proposal[S, I], headers: Mapping[str, str]) -> int:
        try:
            reply = await self._connection.request(
                proposal.subject, proposal.record(), REPLY_TIMEOUT_S, headers=dict(headers)
            )
        except (NatsError, OSError, TimeoutError) as error:
            raise InDoubt(f"the commit may or may not be stored: {error}") from error
        return stored_position(reply)


async def fire(connection: BusClient, replica: Replica[S, I, O], due: datetime) -> int:
    """Store the `Wake` for what is due; return the position of the service's last `Wake`.

    That is another `Wake` if another replica was quicker, or if this replica began at a snapshot
    and did not know of it. If its position is before what the replica has read, call `fire` again.
    Raises InDoubt, ServerRefusal or an error of the client.
    """
    name = replica.service.name
    content, subject = wake(name, due, replica.read_to).encode(), wake_subject(name)
    condition = {EXPECTED_SEQUENCE: str(replica.last_wake)}
    try:
        return await publish_event(connection, subject, content, condition)
    except Conflict:
        last = await leaders_message(connection, STREAM, subject)
        replica.last_wake = last.position if last is not None else 0
        return replica.last_wake
