"""The commands that a client sends: one method per command, and a method to send many at once."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypedDict, TypeVar, Unpack

from pydantic import ValidationError

from nodepool.client.errors import NoOutcome, Refused
from nodepool.client.manifests import Manifest, ManifestError, parse_manifest, parse_manifests
from nodepool.client.names import misnamed
from nodepool.client.outcomes import A, Outcome, PendingOutcomes, outcome_filters
from nodepool.client.read_model import Document
from nodepool.client.sender import Sender
from nodepool.client.session import Session
from nodepool.contract.commands import (
    AddMachines,
    ApplyNodePool,
    BreakMachine,
    CreatePod,
    DeleteNodePool,
    DeletePod,
    DeleteQuota,
    FindCapacity,
    MachineFault,
    PreemptNode,
    RegisterCluster,
    RepairMachine,
    RunPod,
    ScaleNodePool,
    SetQuota,
    StopPod,
)
from nodepool.contract.commands_spot import AcknowledgePreemption, ReclaimCapacity, ReturnCapacity
from nodepool.contract.decode import explain
from nodepool.contract.events import CapacityFound, CommandAccepted
from nodepool.contract.messages import Command, PoolFields
from nodepool.contract.pods import Pod
from nodepool.nats.streams import STREAM

C = TypeVar("C", bound=Command)
WINDOW: Final = 256
"""How many commands are in flight at the same time by default."""


class Simulated(TypedDict, total=False):
    """How simulated machines fail and recover: fields of the command `AddMachines`."""

    verify_seconds: float
    failures_per_day: float
    repair_seconds: float
    seed: int


class Commands(Session):
    """The part of a client that changes something.

    A method that returns `CommandAccepted` raises `Refused` if the control plane refuses the
    command, and `NoOutcome` if there is no outcome within the client's `timeout_s` seconds.
    """

    async def apply(
        self, manifest: ApplyNodePool | Document | str, *, dry_run: bool = False
    ) -> CommandAccepted:
        """Create or change one NodePool, given as a command, a manifest, or its YAML.

        A manifest that cannot be read also raises `Refused`. For many NodePools use `send_many`.
        """
        command = _apply_command(manifest).model_copy(update={"dry_run": dry_run})
        return await self.send(self.addressed(command))

    async def scale(
        self, pool: str, target: int, *, version: str | None = None, dry_run: bool = False
    ) -> CommandAccepted:
        """Set `spec.targetNodes` of a NodePool, or `spec.targetRacks` if the NodePool uses it.

        version: the resourceVersion that the NodePool must still have.
        """
        of = self.fields_of(pool)
        return await self.send(
            ScaleNodePool(**of, target_nodes=target, resource_version=version, dry_run=dry_run)
        )

    async def delete(
        self, pool: str, *, version: str | None = None, dry_run: bool = False
    ) -> CommandAccepted:
        """Begin to remove a NodePool and its Nodes; `wait_until_gone` waits for the end.

        version: the resourceVersion that the NodePool must still have.
        """
        return await self.send(
            DeleteNodePool(**self.fields_of(pool), resource_version=version, dry_run=dry_run)
        )

    async def preempt(self, pool: str, node: str) -> CommandAccepted:
        """Begin the preemption of a spot Node, which is removed within seven minutes."""
        return await self.send(PreemptNode(**self.fields_of(pool), node=node))

    async def acknowledge_preemption(self, pool: str, node: str) -> CommandAccepted:
        """End the warning of a preempted Node: its drain begins now, and it leaves once drained."""
        return await self.send(AcknowledgePreemption(**self.fields_of(pool), node=node))

    async def reclaim_capacity(self, zone: str, instance_type: str, count: int) -> CommandAccepted:
        """Hold back `count` more machines: free machines, then those of preempted Nodes."""
        fields = {"zone": zone, "instance_type": instance_type, "count": count}
        return await self.send(_checked(ReclaimCapacity, fields))

    async def return_capacity(self, zone: str, instance_type: str, count: int) -> CommandAccepted:
        """Give back `count` of the machines that `reclaim_capacity` holds back."""
        fields = {"zone": zone, "instance_type": instance_type, "count": count}
        return await self.send(_checked(ReturnCapacity, fields))

    async def set_quota(self, zone: str, instance_type: str, limit: int) -> CommandAccepted:
        """Set how many Nodes of a type the organisation may hold in a zone."""
        return await self.send(
            SetQuota(org=self.org, zone=zone, instance_type=instance_type, limit=limit)
        )

    async def delete_quota(self, zone: str, instance_type: str) -> CommandAccepted:
        """Unset the organisation's limit for a type in a zone; no Node is removed."""
        return await self.send(DeleteQuota(org=self.org, zone=zone, instance_type=instance_type))

    async def find_capacity(self, selections: Sequence[tuple[str, int]]) -> CapacityFound:
        """Return the zones that likely have these numbers of spot Nodes of each type, best first.

        selections: instance types, each once, with the number of Nodes. Nothing is reserved.
        """
        items = [{"instanceType": name, "count": count} for name, count in selections]
        query = _checked(FindCapacity, {"org": self.org, "selections": items})
        async with self._sender([query], CapacityFound) as sender:
            found = await sender.send(query)
        if isinstance(found, Refused | NoOutcome):
            raise found
        return found

    async def register_cluster(
        self, name: str, zone: str, *, kubernetes: bool = False, uid: str = "", replaces: str = ""
    ) -> CommandAccepted:
        """Register a cluster in a zone; the zone can never be changed.

        With `kubernetes` an agent connects the Kubernetes cluster with this `uid`: see
        `RegisterCluster`.
        """
        cluster = {"org": self.org, "cluster": name, "zone": zone, "kubernetes": kubernetes}
        identity = {"kubernetesUid": uid, "replaces": replaces}
        return await self.send(_checked(RegisterCluster, {**cluster, **identity}))

    async def add_machines(
        self,
        zone: str,
        instance_type: str,
        count: int,
        *,
        boot_seconds: float = 0,
        labels: Mapping[str, str] | None = None,
        in_racks: bool = False,
        **simulated: Unpack[Simulated],
    ) -> CommandAccepted:
        """Add at most `MACHINES_MAX` simulated machines to a zone, with these topology labels.

        With `in_racks` each rack of machines gets an NVLink domain of its own. For the other
        arguments, see the command `AddMachines`.
        """
        return await self.send(
            AddMachines(
                zone=zone,
                instance_type=instance_type,
                count=count,
                labels=dict(labels or {}),
                boot_seconds=boot_seconds,
                in_racks=in_racks,
                **simulated,
            )
        )

    async def break_machine(
        self, zone: str, machine: str, fault: MachineFault, *, times: int = 1, cause: str = ""
    ) -> CommandAccepted:
        """Make a simulated machine fail: at once if it can as a Node, or else at its next boot."""
        return await self.send(
            BreakMachine(zone=zone, machine=machine, fault=fault, times=times, cause=cause)
        )

    async def repair_machine(self, zone: str, machine: str) -> CommandAccepted:
        """Return a machine from triage to the free machines."""
        return await self.send(RepairMachine(zone=zone, machine=machine))

    async def run_pod(self, zone: str, machine: str, pod: Pod) -> CommandAccepted:
        """Start a Pod on a simulated Node."""
        return await self.send(RunPod(zone=zone, machine=machine, pod=pod))

    async def stop_pod(self, zone: str, machine: str, name: str) -> CommandAccepted:
        """End a Pod on a simulated Node, as if its work were finished."""
        return await self.send(StopPod(zone=zone, machine=machine, name=name))

    async def create_pod(self, pool: str, pod: Pod) -> CommandAccepted:
        """Create a Pod that waits until a simulated Node of a NodePool has room for it."""
        return await self.send(CreatePod(**self.fields_of(pool), pod=pod))

    async def delete_pod(
        self, pool: str, name: str, *, grace_s: int | None = None
    ) -> CommandAccepted:
        """Delete a Pod that `create_pod` created, after `grace_s` or its own grace period."""
        return await self.send(DeletePod(**self.fields_of(pool), name=name, grace_s=grace_s))

    def addressed(self, manifest: ApplyNodePool | Manifest) -> ApplyNodePool:
        """Return a manifest as a command for this client's organisation and cluster."""
        command = manifest.command if isinstance(manifest, Manifest) else manifest
        return command.model_copy(update=dict(self.fields_of(command.metadata.name)))

    async def send(self, command: Command, *, id: str = "") -> CommandAccepted:
        """Send any command and return its acceptance.

        id: at most 256 characters. If a command with this id was processed before, whichever
          client sent it, `send` returns its first outcome, and the command is not processed again.
        """
        async with self._sender([command], CommandAccepted) as sender:
            outcome = await sender.send(command, id)
        if isinstance(outcome, CommandAccepted):
            return outcome
        raise outcome

    async def send_many(
        self, commands: Sequence[Command], *, window: int = WINDOW
    ) -> list[Outcome]:
        """Send commands, at most `window` at a time, and return the outcome of each in order.

        `Refused` and `NoOutcome` are among the results and are not raised.
        """
        async with aclosing(self.send_each(commands, window=window)) as pairs:
            return [outcome async for _, outcome in pairs]

    async def send_each(
        self, commands: Sequence[Command], *, window: int = WINDOW
    ) -> AsyncGenerator[tuple[Command, Outcome], None]:
        """Send commands like `send_many`, and yield each command with its outcome, in order."""
        async with self._sender(commands, CommandAccepted) as sender:
            in_flight: deque[tuple[Command, asyncio.Task[Outcome]]] = deque()
            try:
                for command in commands:
                    in_flight.append((command, asyncio.create_task(sender.send(command))))
                    if len(in_flight) >= window:
                        first, outcome = in_flight.popleft()
                        yield first, await outcome
                while in_flight:
                    first, outcome = in_flight.popleft()
                    yield first, await outcome
            finally:
                for _, outcome in in_flight:
                    outcome.cancel()

    @asynccontextmanager
    async def _sender(
        self, commands: Sequence[Command], answer: type[A]
    ) -> AsyncIterator[Sender[A]]:
        """Yield a sender for these commands, which listens for their outcomes inside the context.

        answer: the event that answers a command that is not refused.
        """
        named = (command for command in commands if misnamed(command) is None)
        async with self._reader(STREAM, outcome_filters(named, answer), at_end=True) as reader:
            outcomes = PendingOutcomes(reader, answer)
            listening = asyncio.create_task(outcomes.listen())
            try:
                yield Sender(
                    self._connection, outcomes, source=self._source, timeout_s=self.timeout_s
                )
            finally:
                listening.cancel()

    def fields_of(self, pool: str) -> PoolFields:
        """Return the identity of a NodePool of this client's cluster as fields of a command."""
        return {"org": self.org, "cluster": self.cluster, "pool": pool}


def _checked(kind: type[C], fields: Mapping[str, object]) -> C:
    """Return a command of these fields; raise `Refused` if a field is invalid."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        field, cause = explain(error, kind)
        raise Refused(field, "Invalid", cause) from None


def _apply_command(manifest: ApplyNodePool | Document | str) -> ApplyNodePool:
    if isinstance(manifest, ApplyNodePool):
        return manifest
    try:
        if not isinstance(manifest, str):
            return parse_manifest(manifest, "the manifest")
        parsed = parse_manifests(manifest, "the manifest")
    except ManifestError as error:
        raise Refused("", "Invalid", str(error)) from None
    if len(parsed) > 1:
        raise Refused("", "Invalid", f"holds {len(parsed)} manifests; use send_many for several")
    return parsed[0].command
