"""Taking and releasing the lock of a Node for a Slurm job."""

import asyncio

from nodepool.client.commands import Commands
from nodepool.client.errors import NoOutcome, Refused, Released, TimedOut
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.decode import decode
from nodepool.contract.events import CommandAccepted, NodeLockChanged
from nodepool.contract.messages import Envelope
from nodepool.contract.subjects import subject_of
from nodepool.nats.reader import Reader
from nodepool.nats.streams import STREAM


class Locks(Commands):
    """The part of a client that the prolog and the epilog of a Slurm job use."""

    async def lock_node(
        self, pool: str, node: str, job: str, *, timeout_s: float | None = None
    ) -> None:
        """Take the lock of a Node, and return once each Pod that does not tolerate it is gone.

        Raises `Released` if the lock is released before that, and `TimedOut` after `timeout_s`
        seconds; the lock then stays pending. None waits without limit.
        """
        command = LockNode(**self.fields_of(pool), node=node, job=job)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._reader(STREAM, [_subject(command)], at_end=True) as reader,
                self._sender([command], NodeLockChanged) as sender,
            ):
                taken = await sender.send(command)
                if isinstance(taken, Refused | NoOutcome):
                    raise taken
                state = taken if taken.lock != "pending" else await _end(reader, taken.number)
        except TimeoutError:
            raise TimedOut(
                f"timed out waiting for the lock of node/{node}; it is pending"
            ) from None
        if state.lock == "released":
            raise Released(f"the lock of node/{node} was released: {state.message}")

    async def unlock_node(self, pool: str, node: str, job: str) -> CommandAccepted:
        """Release the lock of a Node, or end the wait for it; without a lock nothing changes."""
        return await self.send(UnlockNode(**self.fields_of(pool), node=node, job=job))


async def _end(reader: Reader, number: int) -> NodeLockChanged:
    """Return the event after which the lock with this number is no longer pending."""
    while True:
        for entry in await reader.next():
            envelope = decode(NodeLockChanged, entry.subject, entry.content, {}, entry.position)
            if isinstance(envelope, Envelope):
                event = envelope.data
                if event.number == number and event.lock != "pending":
                    return event


def _subject(command: LockNode) -> str:
    prefix, _, _ = subject_of(command, "").rpartition(".")
    path = prefix.removeprefix("np.cmd.")
    return f"np.evt.{NodeLockChanged.speaker}.{path}.{NodeLockChanged.__name__}"
