"""The simulated data centre: its machines, and its Pods, which run without Kubernetes."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

from nodepool.client.commands import Commands
from nodepool.client.pods import list_pods, watch_pod
from nodepool.client.session import Session

if TYPE_CHECKING:
    from nodepool.contract.commands import MachineFault
    from nodepool.contract.events import CommandAccepted
    from nodepool.contract.pods import Pod


class MachineOptions(TypedDict, total=False):
    """Optional fields of the command `AddMachines`, which describes them."""

    boot_seconds: float
    labels: Mapping[str, str]
    in_racks: bool
    verify_seconds: float
    failures_per_day: float
    repair_seconds: float
    wipe_seconds: float
    seed: int


class Fleet:
    """The simulated data centre, as `client.fleet`; real machines and clusters do not use it."""

    def __init__(self, session: Session, commands: Commands) -> None:
        self._send = commands.send
        self._of = commands.fields_of
        self.list_pods = partial(list_pods, session)
        self.watch_pod = partial(watch_pod, session)

    async def add_machines(
        self, zone: str, instance_type: str, count: int, **options: Unpack[MachineOptions]
    ) -> "CommandAccepted":
        """Add at most `MACHINES_MAX` simulated machines to a zone."""
        from nodepool.contract.commands import AddMachines

        return await self._send(
            AddMachines(zone=zone, instance_type=instance_type, count=count, **options)
        )

    async def break_machine(
        self, zone: str, machine: str, fault: "MachineFault", *, times: int = 1, cause: str = ""
    ) -> "CommandAccepted":
        """Make a simulated machine fail: at once if it can as a Node, or else at its next boot."""
        from nodepool.contract.commands import BreakMachine

        return await self._send(
            BreakMachine(zone=zone, machine=machine, fault=fault, times=times, cause=cause)
        )

    async def repair_machine(self, zone: str, machine: str) -> "CommandAccepted":
        """Return a machine from triage to the free machines, after a wipe if it is wiped."""
        from nodepool.contract.commands import RepairMachine

        return await self._send(RepairMachine(zone=zone, machine=machine))

    async def run_pod(self, zone: str, machine: str, pod: "Pod") -> "CommandAccepted":
        """Start a Pod on a simulated Node."""
        from nodepool.contract.commands import RunPod

        return await self._send(RunPod(zone=zone, machine=machine, pod=pod))

    async def stop_pod(self, zone: str, machine: str, name: str) -> "CommandAccepted":
        """End a Pod on a simulated Node, as if its work were finished."""
        from nodepool.contract.commands import StopPod

        return await self._send(StopPod(zone=zone, machine=machine, name=name))

    async def create_pod(self, pool: str, pod: "Pod") -> "CommandAccepted":
        """Create a Pod that waits until a simulated Node of a NodePool has room for it."""
        from nodepool.contract.commands import CreatePod

        return await self._send(CreatePod(**self._of(pool), pod=pod))

    async def delete_pod(
        self, pool: str, name: str, *, grace_s: int | None = None
    ) -> "CommandAccepted":
        """Delete a Pod that `create_pod` created, after `grace_s` seconds or its grace period."""
        from nodepool.contract.commands import DeletePod

        return await self._send(DeletePod(**self._of(pool), name=name, grace_s=grace_s))
