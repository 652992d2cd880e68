"""The answers to queries about objects, from the read model in memory; no I/O."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from gateway.model import Change, Includes, ReadModel
from gateway.peers import Peers
from gateway.refusals import Refusal
from nodepool.contract.actors import Actor, Member
from nodepool.contract.buckets import Bucket
from nodepool.contract.documents import Document, text
from nodepool.contract.grammar import label_value
from nodepool.contract.queries import ANSWER_BYTES_MAX, LIMIT_MAX, Explain, Get, List, Watch
from nodepool.contract.selectors import SelectorError, has_fields, selects
from nodepool.explanation.documents import complete, own_facts
from nodepool.explanation.facts import Facts
from nodepool.explanation.sentence import explain

OF_A_CLUSTER: Final = ("nodepools", "nodes")
"""The kinds whose objects belong to a cluster of the organisation."""
LIST_AGAIN: Final = "list the objects again, and watch from the revision of that answer"
Queried = Get | List | Watch | Explain


def find_refusal(query: object, actor: Actor) -> Refusal | None:
    """Return the refusal of a query that the sender may not ask; None if it may.

    An agent may ask about its own cluster only. People may ask about their organisation.
    """
    if not actor.cluster:
        return None
    own = f"an agent asks about its own cluster {actor.cluster}"
    kind, cluster = getattr(query, "kind", ""), getattr(query, "cluster", None)
    if kind == "clusters" and isinstance(query, Get) and query.name == actor.cluster:
        return None
    if kind in ("quotas", "clusters") or cluster is None:
        return Refusal("Forbidden", f"{actor.user} is an agent", own, "kind" if kind else "subject")
    if cluster != actor.cluster:
        return Refusal("Forbidden", f"{actor.user} is an agent of another cluster", own, "cluster")
    return None


def answer_users(members: Sequence[Member], position: int) -> bytes:
    """Return the users of an organisation: of each, what it may do, and never its key."""
    shown = [
        {
            "user": each.name,
            "role": each.role,
            **({"cluster": each.cluster} if each.cluster else {}),
        }
        for each in members[:LIMIT_MAX]
    ]
    return json.dumps({"position": position, "total": len(members), "items": shown}).encode()


def answer_get(model: ReadModel, org: str, query: Get, position: int) -> bytes | Refusal:
    """Return an object of an organisation."""
    if query.kind in OF_A_CLUSTER and not query.cluster:
        return _name_cluster(query.kind)
    held = model.get(query.kind, org, f"{_prefix(query.kind, query.cluster)}{query.name}")
    if held is None:
        error = f"{query.name!a} is not among the {query.kind} of {query.cluster or org}"
        return Refusal("NotFound", error, f"list the {query.kind} to see their names", "name")
    revision = _revision(model, query.kind, held.revision)
    return b'{"position":%d,"revision":%b,"object":%b}' % (position, revision, held.content)


def answer_list(model: ReadModel, org: str, query: List, position: int) -> bytes | Refusal:
    """Return a page of objects of an organisation."""
    includes = _selection(query.label_selector, query.field_selector)
    if isinstance(includes, Refusal):
        return includes
    bucket: Bucket = query.kind
    revision = _revision(model, bucket, model.rooms[bucket].revision)
    page = model.page(
        bucket,
        org,
        _prefix(bucket, query.cluster),
        query.continue_,
        includes,
        limit=query.limit,
        size=ANSWER_BYTES_MAX,
    )
    items = b",".join(held.content for held in page.objects)
    more = b',"continue":%b' % json.dumps(page.end).encode() if page.end else b""
    return b'{"position":%d,"revision":%b%b,"items":[%b]}' % (position, revision, more, items)


def answer_watch(model: ReadModel, org: str, query: Watch, position: int) -> bytes | Refusal | None:
    """Return what has changed of the objects of an organisation; None if nothing has."""
    includes = _selection(query.label_selector, query.field_selector)
    if isinstance(includes, Refusal):
        return includes
    bucket: Bucket = query.kind
    since = _revision_in(model, bucket, query.since)
    if isinstance(since, Refusal):
        return since
    prefix = _prefix(bucket, query.cluster)
    found = model.changes(
        bucket, org, prefix, since, includes, limit=query.limit, size=ANSWER_BYTES_MAX
    )
    if not found.items and found.revision >= model.rooms[bucket].revision:
        return None
    return _build_changes(model, bucket, found.revision, found.items, position)


def answer_unchanged(model: ReadModel, query: Watch, position: int) -> bytes:
    """Return the answer to a watch whose time is over."""
    bucket: Bucket = query.kind
    # This replica may be behind the one that answered before: the reader must not go back.
    revision = max(int(query.since.rpartition("-")[2]), model.rooms[bucket].revision)
    return _build_changes(model, bucket, revision, (), position)


def answer_explain(
    model: ReadModel, org: str, query: Explain, position: int, now: datetime, peers: Peers
) -> bytes | Refusal:
    """Return why a NodePool lacks Nodes."""
    pool = _document(model, "nodepools", org, f"{query.cluster}.{query.pool}")
    if pool is None:
        error = f"{query.pool!a} is not among the nodepools of {query.cluster}"
        return Refusal("NotFound", error, "list the nodepools to see their names", "pool")
    explanation = explain(replace(read_facts(model, org, query.cluster, pool, peers), now=now))
    return json.dumps({"position": position, **explanation.document()}).encode()


def read_facts(model: ReadModel, org: str, cluster: str, pool: Document, peers: Peers) -> Facts:
    """Return the facts about a NodePool, as `nodepool.cli.explained` reads them from the bus."""
    zone = text(_document(model, "clusters", org, cluster), "spec", "zone")
    instance_type = text(pool, "spec", "instanceType")
    if not instance_type or label_value(instance_type) or label_value(zone):
        zone = ""  # Such values cannot be part of a key.
    own = own_facts(pool, peers.nodes(model, org, cluster, text(pool, "metadata", "name")))
    key = f"{zone}.{instance_type}"
    needs_machines = bool(zone) and own.needs_machines
    capacity = _document(model, "capacity", zone, instance_type) if needs_machines else None
    known = complete(
        own,
        zone=zone,
        quota=_document(model, "quotas", org, key) if zone else None,
        capacity=capacity,
        machines=peers.machines(model, zone, instance_type) if capacity is not None else (),
    )
    if not (zone and own.needs_peers):
        return known
    return replace(known, peers=tuple(peers.list(model, org, cluster, own)))


def _document(model: ReadModel, bucket: Bucket, owner: str, key: str) -> Document | None:
    held = model.get(bucket, owner, key)
    return _parse(held.content) if held is not None else None


def _parse(content: bytes) -> Document:
    document: Mapping[str, object] = json.loads(content)
    return document


def _build_changes(
    model: ReadModel,
    bucket: Bucket,
    revision: int,
    items: Sequence[Change],
    position: int,
) -> bytes:
    changes = b",".join(
        b'{"type":"MODIFIED","key":%b,"object":%b}' % (_key(change), change.held.content)
        if change.held.content
        else b'{"type":"DELETED","key":%b,"version":"%d"}' % (_key(change), change.held.version)
        for change in items
    )
    shown = _revision(model, bucket, revision)
    newest = _revision(model, bucket, model.rooms[bucket].revision)
    answer = b'{"position":%d,"revision":%b,"newest":%b,"changes":[%b]}'
    return answer % (position, shown, newest, changes)


def _key(change: Change) -> bytes:
    return json.dumps(change.key).encode()


def _prefix(kind: str, cluster: str) -> str:
    return f"{cluster}." if cluster and kind in OF_A_CLUSTER else ""


def _revision(model: ReadModel, bucket: Bucket, revision: int) -> bytes:
    return b'"%b-%d"' % (model.rooms[bucket].epoch.encode(), revision)


def _revision_in(model: ReadModel, bucket: Bucket, text: str) -> int | Refusal:
    """Return the revision of a query, if all that has happened since is known."""
    room = model.rooms[bucket]
    epoch, _, number = text.rpartition("-")
    if not (number.isascii() and number.isdecimal() and len(number) <= 16):
        return Refusal("Invalid", f"{text!a} is no revision", LIST_AGAIN, "since")
    if epoch != room.epoch:
        return Refusal("Expired", "the revision is of another read model", LIST_AGAIN, "since")
    if int(number) < room.floor:
        return Refusal("Expired", "the revision is too old", LIST_AGAIN, "since")
    return int(number)


def _selection(labels: str, fields: str) -> Includes | Refusal | None:
    """Return whether an object is selected, as a function; None if all are."""
    if not labels and not fields:
        return None
    for field, select, selector in (
        ("labelSelector", selects, labels),
        ("fieldSelector", has_fields, fields),
    ):
        try:
            select(selector, {})
        except SelectorError as error:
            fault, _, fix = str(error).partition("; ")
            return Refusal("Invalid", fault, fix, field)

    def includes(content: bytes) -> bool:
        document = _parse(content)
        return selects(labels, document) and has_fields(fields, document)

    return includes


def _name_cluster(kind: str) -> Refusal:
    return Refusal("Invalid", f"{kind} belong to a cluster", "name the cluster", "cluster")
