"""What the agent costs in a large Kubernetes."""

import asyncio
import time
from collections.abc import AsyncIterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from lightkube import AsyncClient, KubeConfig
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod

from bench.bed import NAME, Seen, apply, bed, start_services, until
from bench.marks import POOL
from bench.usage import cpu_s, read_memory
from kube.audit import AuditLog
from testbed.agent import USER, agent_at_work
from testbed.cluster import Cluster
from testbed.plane import Plane

PROBE = "probe"
SELDOM_S = 3.0
IN_FLIGHT_MAX = 32


class Large(NamedTuple):
    """A large cluster.

    reactions: from a change of a spec until its status shows the verdict on it, in seconds.
    before_mb, after_mb: the agent's memory without Nodes, and with all Nodes and Pods.
    requests: how many were sent in all for each Node, by verb and resource.
    restart_s, restart_cpu_s, restart_requests: from the start of an agent until it has compared
        everything, and what that took.
    unpaged: the lists that asked for no page.
    """

    reactions: Sequence[float]
    before_mb: float
    after_mb: float
    requests: Mapping[tuple[str, str], float]
    restart_s: float
    restart_cpu_s: float
    restart_requests: int
    unpaged: Sequence[str]


def large(nodes: int, pods: int, changes: int) -> Large:
    """A cluster with so many Nodes and Pods, in which the spec of a small NodePool changes."""
    with bed() as (folder, cluster, account), start_services(folder, cluster, nodes + 1) as plane:
        audit = AuditLog(cluster.folder)
        with (
            closing(Seen(cluster)) as seen,
            agent_at_work(folder, account, plane.url) as agent,
        ):
            before_mb = read_memory(agent.pid).rss
            apply(cluster, NAME, nodes)
            until(lambda: seen.current(NAME) == nodes)
            asyncio.run(_fill(cluster, pods))
            until(lambda: agent.metric("nodepool_agent_objects", kind="Pod") >= pods, SELDOM_S)
            requests = audit.counts(USER)
            after_mb = read_memory(agent.pid).rss
            apply(cluster, PROBE, 0)
            reactions = [_reaction(seen, number) for number in range(changes)]
        lists = [each.uri for each in audit.requests(USER) if each.verb == "list"]
        restart_s, restart_cpu_s, restart_requests = _restart(folder, cluster, account, plane)
    return Large(
        reactions,
        before_mb,
        after_mb,
        {key: count / nodes for key, count in requests.items()},
        restart_s,
        restart_cpu_s,
        restart_requests,
        [uri for uri in lists if "limit=" not in uri],
    )


def _restart(
    folder: Path, cluster: Cluster, account: Path, plane: Plane
) -> tuple[float, float, int]:
    audit, began = AuditLog(cluster.folder), time.monotonic()
    with agent_at_work(folder, account, plane.url, name="again") as agent:
        until(lambda: agent.metric("nodepool_agent_queue_length") == 0)
        took = time.monotonic() - began
        return took, cpu_s(agent.pid), sum(audit.counts(USER).values())


def _reaction(seen: Seen, number: int) -> float:
    """How long it takes from one change of a spec until the verdicts on it are shown."""
    began = time.monotonic()
    seen.scale(PROBE, (number + 1) % 2)
    until(lambda: seen.is_checked(PROBE))
    return time.monotonic() - began


async def _fill(cluster: Cluster, pods: int) -> None:
    """Makes so many Pods, bound to the Nodes of the NodePool in turn.

    The controllers of a test cluster make 20 a second at most, which is not what is measured here.
    """
    client = AsyncClient(config=KubeConfig.from_file(str(cluster.kubeconfig)))
    names = [str(node.metadata and node.metadata.name) async for node in _nodes_of(client)]
    at_once = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def make(number: int) -> None:
        container = Container(name="only", image="none")
        spec = PodSpec(containers=[container], nodeName=names[number % len(names)])
        metadata = ObjectMeta(name=f"bench-{number}", namespace="default")
        async with at_once:
            await client.create(Pod(metadata=metadata, spec=spec))

    await asyncio.gather(*map(make, range(pods)))
    await client.close()


def _nodes_of(client: AsyncClient) -> AsyncIterable[Node]:
    return client.list(Node, labels={POOL: NAME}, chunk_size=500)
