"""The initial content of a control plane on one machine: a simulated data centre and NodePools."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodepool.client import Client, ClientError
from nodepool.client.manifests import read_manifests
from nodepool.contract.commands import MACHINES_MAX, AddMachines, ApplyNodePool
from nodepool.local.console import report
from nodepool.local.errors import UpError

ZONE = "US-EAST-04A"
TARGET_S = 90.0
"""How long an example NodePool may take to reach its target, in seconds."""


@dataclass(frozen=True, slots=True)
class Machines:
    """Simulated machines of one type.

    count: the number of machines, and also the demo organisation's quota for them.
    boot_s: how long each machine takes to boot, in seconds.
    """

    instance_type: str
    count: int
    boot_s: float


DATA_CENTRE = (
    Machines("gd-8xh100ib-i128", 64, 2),
    Machines("gd-8xa100-i128", 32, 2),
    Machines("cd-gp-i64-erapids", 2_000, 1),
)


async def seed_demo(client: Client) -> None:
    """Create the client's cluster with its quotas and machines, and keep those that exist."""
    await client.clusters.register(client.cluster, ZONE)
    await _stock(client)


async def _stock(client: Client) -> None:
    capacities = {capacity.key for capacity in await client.capacity.list()}
    quotas = {quota.key for quota in await client.quotas.list()}
    for machines in DATA_CENTRE:
        key = f"{ZONE}.{machines.instance_type}"
        if key not in quotas:
            await client.quotas.set(ZONE, machines.instance_type, machines.count)
        if key not in capacities:
            for command in additions(machines):
                await client.commands.send(command)


def additions(machines: Machines) -> Iterator[AddMachines]:
    """Yield the commands that add these machines, at most `MACHINES_MAX` per command."""
    for added in range(0, machines.count, MACHINES_MAX):
        yield AddMachines(
            zone=ZONE,
            instance_type=machines.instance_type,
            count=min(MACHINES_MAX, machines.count - added),
            boot_seconds=machines.boot_s,
        )


async def apply_examples(client: Client, examples: Path) -> None:
    """Apply the manifests of a folder to a cluster without NodePools, and wait for their targets.

    A cluster that has, or had, NodePools keeps them as they are. Raises `UpError` for a NodePool
    that is refused.
    """
    commands = _read(client, examples)
    if await client.nodepools.was_stored("*"):
        report(
            f"left the NodePools of {client.org}/{client.cluster} as they are;"
            f" 'nodepool apply -f {examples}' applies the {len(commands)} examples"
        )
        return
    await _apply(client, commands, examples)


async def seed_once(client: Client, examples: Path) -> None:
    """Do the same as `seed_demo` and `apply_examples`, and restore nothing that was deleted.

    Raises `UpError` for a NodePool that is refused.
    """
    commands = _read(client, examples)
    # First, because its outcome shows that the services are at work. A log may not exist before.
    await client.clusters.register(client.cluster, ZONE)
    new = [each for each in commands if not await client.nodepools.was_stored(each.metadata.name)]
    # NodePools are stored last: if one exists, everything before it has been stored too.
    if len(new) == len(commands):
        await _stock(client)
    await _apply(client, new, examples)


def _read(client: Client, examples: Path) -> list[ApplyNodePool]:
    return [
        client.nodepools.address_manifest(manifest) for manifest in read_manifests([str(examples)])
    ]


async def _apply(client: Client, commands: Sequence[ApplyNodePool], examples: Path) -> None:
    report(f"applying {len(commands)} NodePools from {examples}")
    for command, outcome in zip(commands, await client.commands.send_many(commands), strict=True):
        if isinstance(outcome, ClientError):
            raise UpError(f"{command.metadata.name}: {outcome}")
    for command in commands:
        await client.nodepools.wait(command.metadata.name, "AtTarget", timeout_s=TARGET_S)
