"""The simulated data centre: its machines, and its Pods, which run without Kubernetes."""

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, TypedDict, Unpack

from nodepool.client.commands import Commands
from nodepool.client.session import Session

if TYPE_CHECKING:
    from nodepool.client.pod_list import ListedPods
    from nodepool.client.pods import PodEvent
    from nodepool.contract.commands import MachineFault
    from nodepool.contract.events import CommandAccepted
    from nodepool.contract.pods import Pod


class Simulated(TypedDict, total=False):
    """How simulated machines fail and recover: fields of the command `AddMachines`."""

    verify_seconds: float
    failures_per_day: float
    repair_seconds: float
    seed: int


class Fleet:
    """The simulated data centre, as `client.fleet`; real machines and clusters do not use it.

    A method that changes something raises `Refused` if the control plane refuses the change, and
    `NoOutcome` if there is no outcome within the client's `timeout_s` seconds.
    """

    def __init__(self, session: Session, commands: Commands) -> None:
        self._session = session
        self._commands = commands

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
    ) -> "CommandAccepted":
        """Add at most `MACHINES_MAX` simulated machines to a zone, with these topology labels.

        With `in_racks` each rack of machines gets an NVLink domain of its own. For the other
        arguments, see the command `AddMachines`.
        """
        from nodepool.contract.commands import AddMachines

        return await self._commands.send(
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
        self, zone: str, machine: str, fault: "MachineFault", *, times: int = 1, cause: str = ""
    ) -> "CommandAccepted":
        """Make a simulated machine fail: at once if it can as a Node, or else at its next boot."""
        from nodepool.contract.commands import BreakMachine

        return await self._commands.send(
            BreakMachine(zone=zone, machine=machine, fault=fault, times=times, cause=cause)
        )

    async def repair_machine(self, zone: str, machine: str) -> "CommandAccepted":
        """Return a machine from triage to the free machines."""
        from nodepool.contract.commands import RepairMachine

        return await self._commands.send(RepairMachine(zone=zone, machine=machine))

    async def run_pod(self, zone: str, machine: str, pod: "Pod") -> "CommandAccepted":
        """Start a Pod on a simulated Node."""
        from nodepool.contract.commands import RunPod

        return await self._commands.send(RunPod(zone=zone, machine=machine, pod=pod))

    async def stop_pod(self, zone: str, machine: str, name: str) -> "CommandAccepted":
        """End a Pod on a simulated Node, as if its work were finished."""
        from nodepool.contract.commands import StopPod

        return await self._commands.send(StopPod(zone=zone, machine=machine, name=name))

    async def create_pod(self, pool: str, pod: "Pod") -> "CommandAccepted":
        """Create a Pod that waits until a simulated Node of a NodePool has room for it."""
        from nodepool.contract.commands import CreatePod

        return await self._commands.send(CreatePod(**self._commands.fields_of(pool), pod=pod))

    async def delete_pod(
        self, pool: str, name: str, *, grace_s: int | None = None
    ) -> "CommandAccepted":
        """Delete a Pod that `create_pod` created, after `grace_s` seconds or its grace period."""
        from nodepool.contract.commands import DeletePod

        of = self._commands.fields_of(pool)
        return await self._commands.send(DeletePod(**of, name=name, grace_s=grace_s))

    async def list_pods(self) -> "ListedPods":
        """Return the Pods of the cluster, as far as the newest changes of Pods in the log show."""
        from nodepool.client.pod_list import list_pods

        return await list_pods(self._session)

    def watch_pod(self, pool: str, name: str, *, after: int) -> "AsyncGenerator[PodEvent, None]":
        """Yield changes of a Pod, and preemptions of Nodes of its NodePool, without end.

        Events that are stored while the server cannot be reached follow once it can be reached.

        after: only the events that lie in the log after this position.
        """
        from nodepool.client.pods import pod_events

        return pod_events(self._session, pool, name, after=after)
