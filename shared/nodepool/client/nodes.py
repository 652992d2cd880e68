"""Nodes: reading, awaiting, cordoning, draining, rebooting, preempting and locking them."""

import asyncio
from typing import TYPE_CHECKING

from nodepool.client.backend import Heard
from nodepool.client.commands import Commands
from nodepool.client.errors import NoOutcome, Refused, Released, TimedOut
from nodepool.client.objects import Objects
from nodepool.client.session import Session
from nodepool.contract.keys import token

if TYPE_CHECKING:
    from nodepool.contract.events import CommandAccepted, NodeLockChanged


class Nodes:
    """The Nodes of the cluster, as `client.nodes`.

    The methods that read and wait are those of `Objects`. A method that changes a Node takes the
    names of its NodePool and of the Node.
    """

    def __init__(self, session: Session, commands: Commands) -> None:
        self._session = session
        self._commands = commands
        self._send = commands.send
        self._of = commands.fields_of
        objects = Objects(session, "nodes")
        self.get, self.list, self.watch = objects.get, objects.list, objects.watch
        self.follow, self.catch_up = objects.follow, objects.catch_up
        self.wait, self.wait_for = objects.wait, objects.wait_for
        self.wait_until_created = objects.wait_until_created
        self.wait_until_gone = objects.wait_until_gone

    async def cordon(
        self, pool: str, node: str, *, reason: str = "AdminCordon"
    ) -> "CommandAccepted":
        """Keep new Pods off a Node until `uncordon`.

        reason: the cause, as the label `node.coreweave.cloud/cordonReason` names it; no commas.
        """
        from nodepool.contract.commands import CordonNode

        return await self._send(CordonNode(**self._of(pool), node=node, reason=reason))

    async def uncordon(self, pool: str, node: str) -> "CommandAccepted":
        """Take back the cordon, the drain and the reboot that were requested for a Node."""
        from nodepool.contract.commands import UncordonNode

        return await self._send(UncordonNode(**self._of(pool), node=node))

    async def drain(
        self, pool: str, node: str, *, reason: str = "AdminDrain", force: bool = False
    ) -> "CommandAccepted":
        """Cordon a Node and begin to end its Pods; an unhealthy Node is then cured or replaced.

        reason: as for `cordon`.
        force: whether no Pod may block the drain; Pods keep their grace periods.
        """
        from nodepool.contract.commands import DrainNode

        return await self._send(DrainNode(**self._of(pool), node=node, reason=reason, force=force))

    async def reboot(self, pool: str, node: str, *, force: bool = False) -> "CommandAccepted":
        """Reboot a Node once no Pod on it blocks the reboot.

        force: whether the Node's power is reset at once, whatever runs on the Node.
        """
        from nodepool.contract.commands import RebootNode

        return await self._send(RebootNode(**self._of(pool), node=node, force=force))

    async def preempt(self, pool: str, node: str) -> "CommandAccepted":
        """Begin the preemption of a spot Node, which is removed within seven minutes."""
        from nodepool.contract.commands import PreemptNode

        return await self._send(PreemptNode(**self._of(pool), node=node))

    async def acknowledge_preemption(self, pool: str, node: str) -> "CommandAccepted":
        """End the warning of a preempted Node: its drain begins now, and it leaves once drained."""
        from nodepool.contract.commands_spot import AcknowledgePreemption

        return await self._send(AcknowledgePreemption(**self._of(pool), node=node))

    async def lock(self, pool: str, node: str, job: str, *, timeout_s: float | None = None) -> None:
        """Take the lock of a Node for a Slurm job, and wait until the lock is held.

        The lock is held once each Pod that does not tolerate it is gone. Raises `Released` if the
        lock is released before that, and `TimedOut` after `timeout_s` seconds; the lock then stays
        pending. None waits without limit.
        """
        from nodepool.contract.commands_slurm import LockNode
        from nodepool.contract.events import NodeLockChanged

        command = LockNode(**self._of(pool), node=node, job=job)
        path = ".".join(map(token, command.path))
        subject = f"np.evt.{NodeLockChanged.speaker}.{path}.{NodeLockChanged.__name__}"
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.backend.hear([subject]) as heard,
                self._commands.sender([command], NodeLockChanged) as sender,
            ):
                taken = await sender.send(command)
                if isinstance(taken, Refused | NoOutcome):
                    raise taken
                state = taken if taken.lock != "pending" else await _end(heard, taken.number)
        except TimeoutError:
            raise TimedOut(
                f"timed out waiting for the lock of node/{node}; it is pending"
            ) from None
        if state.lock == "released":
            raise Released(f"the lock of node/{node} was released: {state.message}")

    async def unlock(self, pool: str, node: str, job: str) -> "CommandAccepted":
        """Release the lock of a Node, or end the wait for it; without a lock nothing changes."""
        from nodepool.contract.commands_slurm import UnlockNode

        return await self._send(UnlockNode(**self._of(pool), node=node, job=job))


async def _end(heard: Heard, number: int) -> "NodeLockChanged":
    """Return the event after which the lock with this number is no longer pending."""
    from nodepool.contract.decode import decode
    from nodepool.contract.events import NodeLockChanged
    from nodepool.contract.messages import Envelope

    while True:
        for entry in await heard.next():
            envelope = decode(NodeLockChanged, entry.subject, entry.content, {}, entry.position)
            if isinstance(envelope, Envelope):
                event = envelope.data
                if event.number == number and event.lock != "pending":
                    return event
