"""Whether the agent of each Kubernetes cluster is at work."""

from collections.abc import AsyncGenerator

from nodepool.client.client import Client
from nodepool.client.doctor.finding import Finding, note, ok, problem
from nodepool.client.objects import Document
from nodepool.client.usage import read_agents
from nodepool.nats.log.replicas import agents_at_work
from nodepool.nats.wire.connection import Connection


async def agents(connection: Connection, client: Client, own: str) -> AsyncGenerator[Finding, None]:
    """Yield a finding for each cluster with an agent; `own` is the version of this program."""
    listed = await client.clusters.list(everywhere=True)
    connected = {each.key: name for each in listed if (name := _format_cluster(each.document))}
    if not connected:
        return
    at_work = {**await agents_at_work(connection), **await read_agents(client.session)}
    for key, cluster in connected.items():
        version = at_work.get(cluster)
        if version is not None:
            yield _at_work(cluster, version, own)
        else:
            pools = await client.nodepools.list(f"{key}.", everywhere=True)
            yield _missing(cluster, has_pools=bool(pools))


def _format_cluster(document: Document | None) -> str:
    """Return `<org>/<cluster>` of a Kubernetes cluster; empty for a cluster of another kind."""
    match document:
        case {"metadata": {"name": str(name)}, "spec": {"org": str(org), "kubernetes": True}}:
            return f"{org}/{name}"
    return ""


def _missing(cluster: str, *, has_pools: bool) -> Finding:
    """Return a problem if the cluster has NodePools; else a note, as the agent may be retired."""
    check, name = f"agent {cluster}", cluster.rpartition("/")[2]
    fix = f"in {name}: kubectl -n kube-system get pods -l app.kubernetes.io/name=nodepool-agent"
    if has_pools:
        text = "no agent reads the log: NodePools and Nodes of the cluster are not kept up"
        return problem(check, text, fix)
    return note(check, "no agent reads the log, and the cluster has no NodePools", fix)


def _at_work(cluster: str, version: str, own: str) -> Finding:
    check = f"agent {cluster}"
    if version != own:
        text = f"reads the log; version {version}, and this command is {own}"
        return note(check, text, "update the other one")
    return ok(check, "reads the log")
