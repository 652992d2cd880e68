"""Why a NodePool lacks Nodes: the facts to read, and how the explanation is printed."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from nodepool.cli.clock import shown_now
from nodepool.cli.layout import escape_text
from nodepool.cli.times import human, moment
from nodepool.contract.documents import Document, field, items, label, text
from nodepool.contract.grammar import label_value
from nodepool.contract.keys import peer_name
from nodepool.contract.moments import rfc3339
from nodepool.explanation.documents import (
    POOL_LABEL,
    complete,
    facts,
    machine_facts,
    read_peer,
)
from nodepool.explanation.facts import Facts, Peer
from nodepool.explanation.sentence import explain

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.client.objects import Object

WIDTH = 100
_INDENT = "   "


async def read_facts(client: "Client", pool: Document) -> Facts:
    """Read the facts of the read model about a NodePool of the client's cluster.

    For a healthy NodePool, facts that it does not depend on, such as other NodePools, are not read.
    """
    zones = {each.key: text(each.document, "spec", "zone") for each in await client.clusters.list()}
    zone = zones.get(client.cluster, "")
    instance_type = text(pool, "spec", "instanceType")
    if not instance_type or label_value(instance_type) or label_value(zone):
        zone = ""  # Such values cannot be part of a key.
    key = f"{zone}.{instance_type}"
    nodes = _by_pool(await client.nodes.list())
    own = facts(pool, nodes=nodes.get(text(pool, "metadata", "name"), ()))
    peers = await _read_peers(client, zones, own, nodes) if zone and own.needs_peers else []
    capacity = await client.capacity.get(key) if zone and own.needs_machines else None
    machines = await client.objects("machines").list(f"{zone}.") if capacity is not None else ()
    read = complete(
        own,
        zone=zone,
        # The autoscaler never asks for more than the quota allows, and no condition shows this.
        quota=await client.quotas.get(key) if zone else None,
        capacity=capacity,
        machines=[
            machine_facts(each.document)
            for each in machines
            if text(each.document, "spec", "instanceType") == instance_type
        ],
    )
    return replace(read, peers=tuple(peers), now=shown_now())


async def explain_pool(client: "Client", pool: Document) -> Document:
    """Return why a NodePool does not have what it wants, as `Explanation.document` does."""
    explained = await client.nodepools.explain(text(pool, "metadata", "name"))
    return explained or explain(await read_facts(client, pool)).document()


async def why_pods_wait(client: "Client", pool: str) -> str:
    """Return why no Node takes a Pod of this NodePool, in one sentence; empty if unknown."""
    from nodepool.client.errors import ClientError

    try:
        document = await client.nodepools.get(pool)
        if document is None:
            return ""
        explanation = await explain_pool(client, document)
    except (ClientError, TimeoutError):
        return ""
    if items(explanation, "causes"):
        return text(explanation, "sentence")
    return f"no Node of NodePool {pool} is open to it and has room"


async def _read_peers(
    client: "Client", zones: Mapping[str, str], own: Facts, nodes: Mapping[str, Sequence[Document]]
) -> list[Peer]:
    """Return the organisation's other NodePools of the type in the zone.

    nodes: the Nodes of the client's cluster, by NodePool.
    """
    found, by_cluster = list[Peer](), {client.cluster: nodes}
    for each in await client.nodepools.list(f"{client.org}.", everywhere=True):
        _, cluster, name = each.key.split(".", 2)
        is_near = zones.get(cluster) == zones[client.cluster]
        is_own = (cluster, name) == (client.cluster, own.name)
        kind = text(each.document, "spec", "instanceType")
        if each.document is None or is_own or not is_near or kind != own.instance_type:
            continue
        if cluster not in by_cluster:
            listed = await client.nodes.list(f"{client.org}.{cluster}.", everywhere=True)
            by_cluster[cluster] = _by_pool(listed)
        joined = by_cluster[cluster].get(text(each.document, "metadata", "name"), ())
        found.append(read_peer(peer_name(cluster, name), each.document, joined))
    return found


def _by_pool(nodes: "Iterable[Object]") -> Mapping[str, Sequence[Document]]:
    """Return the Nodes of a cluster by NodePool."""
    found: dict[str, list[Document]] = {}
    for each in nodes:
        if each.document is not None:
            found.setdefault(label(each.document, POOL_LABEL), []).append(each.document)
    return found


def format_explanation(explanation: Document, now: datetime) -> str:
    """Return the sentence, and the ranked causes with their evidence, as lines of text."""
    lines = [escape_text(text(explanation, "sentence"))]
    for cause in items(explanation, "causes"):
        lines += ["", *_cause(cause, now)]
    return "\n".join(lines)


def _cause(cause: object, now: datetime) -> Iterator[str]:
    yield f"{field(cause, 'rank')}. {escape_text(text(cause, 'title'))}{_since(cause, now)}"
    if message := text(cause, "message"):
        yield from _wrap_text("", message)
    for detail in _texts(cause, "details"):
        yield from _wrap_text("", detail)
    for help in _texts(cause, "helps"):
        yield from _wrap_text("helps: ", help)
    proofs = [
        f"{field(each, 'logPosition')} ({text(each, 'about')})" for each in items(cause, "proofs")
    ]
    if proofs:
        yield from _wrap_text("log:   ", ", ".join(proofs))


def _texts(cause: object, name: str) -> list[str]:
    found = field(cause, name)
    return list(map(str, found)) if isinstance(found, list) else []


def _since(cause: object, now: datetime) -> str:
    since = moment(text(cause, "since"))
    if since is None:
        return ""
    status = f"{text(cause, 'status')} ".lstrip()
    return f", {status}since {rfc3339(since)} ({human((now - since).total_seconds())})"


def _wrap_text(label: str, words: str) -> list[str]:
    """Return the words as lines; names and commands are never broken in two."""
    return textwrap.wrap(
        escape_text(words),
        WIDTH,
        initial_indent=f"{_INDENT}{label}",
        subsequent_indent=f"{_INDENT}{' ' * len(label)}",
        break_long_words=False,
        break_on_hyphens=False,
    )
