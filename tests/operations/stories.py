"""What happens to a fleet, so that every panel has something to show."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial

from bus.harness import connected, until
from nodepool.client import Client, Document, Refused
from nodepool.contract.commands import RebootNode
from nodepool.contract.events import CWNodeUncordoned
from nodepool.contract.messages import envelope_of
from nodepool.contract.pods import Pod
from nodepool.contract.subjects import subject_of
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from operations.observed import Observed
from support.constants import A100, H100, L40, ZONE

OTHER_ZONE = "US-WEST-04A"
LIMIT = 20
MACHINES = {H100: 12, A100: 3, L40: 12}
BOOTS_S = {A100: 600.0}
"""How long machines of a type boot, where that is longer than half a second."""
TIMEOUT_S = 60.0
NOT_THERE = CWNodeUncordoned(
    org="acme",
    cluster="prod",
    pool="training",
    zone=ZONE,
    node="nosuch",
    assignment=1,
    message="Node nosuch is no longer cordoned",
)
"""An event about a Node that there is not, which breaks a rule that the aggregator checks."""


def manifest(name: str, kind: str, target: int, **spec: object) -> Document:
    """A NodePool as people write it."""
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"instanceType": kind, "targetNodes": target, **spec},
    }


async def nodes(client: Client, pool: str) -> Sequence[str]:
    """The names of the Nodes of a NodePool, those that boot included."""
    found = await client.nodes.list()
    return sorted(
        each.key.rpartition(".")[2]
        for each in found
        if each.document is not None and _labels(each.document).get(POOL_LABEL) == pool
    )


POOL_LABEL = "compute.coreweave.com/node-pool"


def _labels(document: Document) -> Mapping[str, object]:
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    labels: Mapping[str, object] = metadata["labels"]
    return labels


async def set_up(client: Client, zone: str, kinds: Sequence[str]) -> None:
    """Machines, quotas and a cluster of an organisation in a zone."""
    await client.clusters.register(client.cluster, zone)
    for kind in kinds:
        await client.quotas.set(zone, kind, LIMIT)
        await client.fleet.add_machines(
            zone, kind, MACHINES[kind], boot_seconds=BOOTS_S.get(kind, 0.5)
        )


async def scaling(client: Client) -> None:
    """A NodePool comes to its target, grows and shrinks; another is deleted."""
    await client.nodepools.apply(manifest("training", H100, 3))
    await client.nodepools.apply(manifest("gone", H100, 1))
    for pool in ("training", "gone"):
        await client.nodepools.wait(pool, "AtTarget", timeout_s=TIMEOUT_S)
    for target in (5, 4):
        await client.nodepools.scale("training", target)
        await client.nodepools.wait("training", "AtTarget", timeout_s=TIMEOUT_S)
    await client.nodepools.delete("gone")
    await client.nodepools.wait_until_gone("gone", timeout_s=TIMEOUT_S)


async def blocked(client: Client) -> None:
    """A NodePool over its quota, one without enough machines, an invalid one, a refused command."""
    await client.nodepools.apply(manifest("greedy", H100, 1))
    await client.nodepools.wait("greedy", "AtTarget", timeout_s=TIMEOUT_S)
    await client.nodepools.scale("greedy", 40)
    await client.nodepools.apply(manifest("waiting", A100, 5))
    await client.nodepools.apply(manifest("typo", "gd-8xh1000", 1))
    await client.nodepools.wait("greedy", "Quota", "False", timeout_s=TIMEOUT_S)
    await client.nodepools.wait("waiting", "Capacity", "False", timeout_s=TIMEOUT_S)
    await client.nodepools.wait("typo", "Validated", "False", timeout_s=TIMEOUT_S)
    try:
        await client.nodepools.scale("nosuch", 1)
    except Refused:
        return
    raise AssertionError("a NodePool that does not exist was scaled")


async def failing(client: Client, zone: str) -> None:
    """A machine that does not boot; Nodes that need a reboot, a technician, or their owner; and a
    Node that is silent."""
    await until(lambda: _are_there(client, L40), TIMEOUT_S)
    # Of twelve machines four do not boot, so some of them are tried.
    for machine in (await machines(client, L40))[:4]:
        await client.fleet.break_machine(zone, machine, "boot")
    evicted = {"disableUnhealthyNodeEviction": False}
    await client.nodepools.apply(manifest("hurt", L40, 4, lifecycle=evicted))
    await client.nodepools.wait("hurt", "AtTarget", timeout_s=TIMEOUT_S)
    await client.nodepools.apply(manifest("kept", L40, 1))
    await client.nodepools.wait("kept", "AtTarget", timeout_s=TIMEOUT_S)
    cured, replaced, silent, *_ = await nodes(client, "hurt")
    (kept,) = await nodes(client, "kept")
    await client.fleet.break_machine(zone, cured, "xid")
    await client.fleet.break_machine(zone, replaced, "gpu-lost")
    await client.fleet.break_machine(zone, kept, "disk")
    await client.fleet.break_machine(zone, silent, "kubelet")
    await until(lambda: _gone(client, "hurt", replaced), TIMEOUT_S)
    await client.nodepools.wait("hurt", "AtTarget", timeout_s=TIMEOUT_S)


async def preempted(client: Client, zone: str, it: Observed) -> None:
    """Spot Nodes that go at once, since that is asked for, and one that has two minutes more.

    Between the first and the second both services that count it come to another leader.
    """
    await client.nodepools.apply(manifest("spot", H100, 3, computeClass="spot"))
    await client.nodepools.wait("spot", "AtTarget", timeout_s=TIMEOUT_S)
    first, second, third = await nodes(client, "spot")
    for node in (first, second):
        await client.nodes.preempt("spot", node)
        await client.nodes.acknowledge_preemption("spot", node)
        await until(partial(_gone, client, "spot", node), TIMEOUT_S)
        if node == first:
            for service in ("preemption", "aggregator"):
                await it.kill_leader(service)
    await client.fleet.run_pod(zone, third, Pod(name="work", gpus=8))
    await client.nodes.preempt("spot", third)


async def too_early(client: Client) -> None:
    """A reboot of a Node that boots."""
    await until(lambda: _has_nodes(client, "waiting"), TIMEOUT_S)
    node, *_ = await nodes(client, "waiting")
    try:
        await client.commands.send(RebootNode(**client.commands.fields_of("waiting"), node=node))
    except Refused:
        return
    raise AssertionError("a Node that boots was rebooted")


async def disturbed(it: Observed) -> None:
    """What should not be: an unknown command, an object of the read model that another program has
    changed, an event about a Node that there is not, an event that cannot be read; and a request
    that the server answers with an error."""
    kind = type(NOT_THERE)
    envelope = envelope_of(kind).model_construct(
        id="nosuch", type=kind.__name__, source=NOT_THERE.speaker, data=NOT_THERE
    )
    async with connected(it.server.url) as connection:
        # Large, so that the log has grown, whatever else of it was trimmed.
        await api.publish(connection, "np.cmd.acme.prod.training.Invented", b" " * 500_000)
        await until(lambda: is_parked(connection), TIMEOUT_S)
        assert await api.leaders_message(connection, STREAM, "np.dead.nosuch") is None
        await api.publish(connection, "$KV.nodepools.acme.prod.training", b"{}")
        await api.publish_event(
            connection, subject_of(NOT_THERE, NOT_THERE.speaker), envelope.encode()
        )
        await until(lambda: it.total("nodepool_read_model_repairs_total") > 0, TIMEOUT_S)
        # Only now: it changes the NodePool, whose next version would replace the object unseen.
        await api.publish(connection, subject_of(NOT_THERE, NOT_THERE.speaker), b"no event")


async def is_parked(connection: Connection) -> bool:
    """Whether the validator has stored a dead letter."""
    return await api.last_message(connection, STREAM, "np.dead.validator") is not None


async def _are_there(client: Client, kind: str) -> bool:
    return len(await machines(client, kind)) == MACHINES[kind]


async def _has_nodes(client: Client, pool: str) -> bool:
    return bool(await nodes(client, pool))


async def _gone(client: Client, pool: str, node: str) -> bool:
    return node not in await nodes(client, pool)


async def machines(client: Client, kind: str) -> Sequence[str]:
    """The names of the machines of a type."""
    found = await client.objects("machines").list()
    return sorted(
        each.key.rpartition(".")[2]
        for each in found
        if each.document is not None and kind in json.dumps(each.document)
    )


async def prepare(server: NatsServer) -> None:
    """Two zones with machines, for two organisations."""
    async with of("acme", "prod", server) as acme, of("umbrella", "dev", server) as umbrella:
        await set_up(acme, ZONE, (H100, A100, L40))
        await set_up(umbrella, OTHER_ZONE, (H100,))


async def tell(it: Observed) -> None:
    """All that happens; meanwhile the leaders of what counts in its state are killed."""
    server = it.server
    async with of("acme", "prod", server) as acme, of("umbrella", "dev", server) as umbrella:
        await asyncio.gather(scaling(acme), scaling(umbrella))
        await asyncio.gather(
            blocked(acme), failing(acme, ZONE), preempted(umbrella, OTHER_ZONE, it)
        )
        await too_early(acme)
    await disturbed(it)


def of(org: str, cluster: str, server: NatsServer) -> Client:
    """The client of an organisation in its cluster."""
    return Client(server.url, org=org, cluster=cluster, timeout_s=TIMEOUT_S)
