"""Whether each cluster of Kubernetes has its agent at work."""

from collections.abc import AsyncGenerator

from nodepool.client.doctor.finding import Finding, note, ok, problem
from nodepool.client.read_model import Document
from nodepool.client.reading import ReadingClient
from nodepool.nats.connection import Connection
from nodepool.nats.replicas import agents_at_work


async def agents(
    connection: Connection, client: ReadingClient, own: str
) -> AsyncGenerator[Finding, None]:
    """A finding for each cluster that an agent connects; `own` is the version of this program."""
    listed = await client.list("clusters", everywhere=True)
    connected = [name for each in listed if (name := _connected(each.document))]
    at_work = await agents_at_work(connection) if connected else {}
    for cluster in connected:
        yield _agent(cluster, at_work.get(cluster), own)


def _connected(document: Document | None) -> str:
    """`<org>/<cluster>` of a cluster of Kubernetes; empty for another one."""
    match document:
        case {"metadata": {"name": str(name)}, "spec": {"org": str(org), "kubernetes": True}}:
            return f"{org}/{name}"
    return ""


def _agent(cluster: str, version: str | None, own: str) -> Finding:
    check, name = f"agent {cluster}", cluster.rpartition("/")[2]
    if version is None:
        text = "no agent reads the log: NodePools and Nodes of the cluster are not kept up"
        fix = f"in {name}: kubectl -n kube-system get pods -l app.kubernetes.io/name=nodepool-agent"
        return problem(check, text, fix)
    if version != own:
        text = f"reads the log; version {version}, and this command is {own}"
        return note(check, text, "update the other one")
    return ok(check, "reads the log")
