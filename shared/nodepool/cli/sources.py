"""Reading the objects of each type from their source: a bucket, the catalog, or the log."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from nodepool.cli.clock import shown_now
from nodepool.cli.errors import UNREACHABLE, CliError
from nodepool.cli.event_table import count_events, event_document, occurred_once
from nodepool.cli.names import (
    EVENT,
    INSTANCE_TYPE,
    KINDS,
    NODE,
    NODEPOOL,
    POD,
    PREEMPTION,
    ZONE,
    Kind,
)
from nodepool.cli.output import print_note
from nodepool.cli.pod_table import pod_document
from nodepool.cli.preemption_table import preemption_document
from nodepool.contract.documents import Document, field, text

if TYPE_CHECKING:
    from nodepool.client import Client, Object

EVENTS_KEPT = timedelta(hours=1)
"""The maximum age of a listed event; Kubernetes deletes events after this time."""
PREEMPTIONS_KEPT = timedelta(days=7)
"""The maximum age of a listed preemption, unless the user sets another."""
WATCHED = tuple(kind for kind in KINDS if kind.stored_in is not None or kind is EVENT)
"""The types whose changes can be watched."""
COUNTS = ("free", "assigned", "triage")
_PLACE_PARTS = {"cluster": 2, "organisation": 1, "cell": 0}


class NotReady(CliError):
    """The read model does not yet show the objects of the log, for example after a restore."""

    code = UNREACHABLE

    def __init__(self, plural: str) -> None:
        super().__init__(
            f"the read model does not show the {plural} of the log yet: try again in a moment, and"
            " 'nodepool doctor' says whether the aggregator writes it"
        )


class Item(NamedTuple):
    """An object to show.

    key: identifies the object among all objects that are read.
    document: the content of the object; None if it has been deleted.
    place: the object's organisation and cluster, if objects of all clusters are read.
    """

    key: str
    document: Document | None
    place: tuple[str, ...] = ()


class EndOfList(NamedTuple):
    """The mark that a watch yields once, after all objects that existed when the watch began."""


async def read(
    client: "Client",
    kind: Kind,
    names: Sequence[str] = (),
    *,
    everywhere: bool = False,
    back: timedelta | None = None,
    at_once: bool = False,
) -> list[Item]:
    """Return the objects of a type in the order of their keys.

    For some types, only the objects with the given names are returned. The objects reflect
    every command that was accepted before the call; if the read model is behind, a note says so.

    back: how far to look back for events or preemptions; None for an hour, or seven days.
    at_once: whether all is read as the read model has it, which may be behind.
    """
    if kind.stored_in is None:
        documents = await _compute_documents(client, kind, back)
        return [Item(text(document, "metadata", "name"), document) for document in documents]
    objects = client.objects(kind.bucket)
    is_certain = at_once or await objects.catch_up(everywhere=everywhere)
    if not is_certain:
        print_note("the read model is behind the log: the newest changes may be missing here")
    if kind in (NODEPOOL, NODE) and names and not everywhere:
        named = [(name, await objects.get(name)) for name in names]
        found = [Item(name, document) for name, document in named if document is not None]
        if not (is_certain or len(found) == len(names)):
            raise NotReady(kind.plural)
        return found
    listed = await objects.list(everywhere=everywhere)
    if not (is_certain or listed):
        raise NotReady(kind.plural)
    return [_item(kind, each, everywhere=everywhere) for each in listed]


async def watch(
    client: "Client", kind: Kind, *, everywhere: bool = False, past: bool = True
) -> AsyncGenerator[Item | EndOfList, None]:
    """Yield every object of a type, `EndOfList`, then each change, without an end.

    kind: a type in `WATCHED`.
    past: whether the events of the last hour are changes too; it has no effect on other types.
    """
    from nodepool.client import Listed

    if kind is EVENT:
        async with aclosing(_new_events(client, past=past)) as items:
            async for item in items:
                yield item
        return
    async with aclosing(client.objects(kind.bucket).watch(everywhere=everywhere)) as changes:
        async for change in changes:
            if isinstance(change, Listed):
                yield EndOfList()
            else:
                yield _item(kind, change, everywhere=everywhere)


def _item(kind: Kind, change: "Object", *, everywhere: bool) -> Item:
    parts = _PLACE_PARTS[kind.scope] if everywhere else 0
    place = tuple(change.key.split(".")[:parts])
    return Item(change.key, change.document, place)


async def _new_events(client: "Client", *, past: bool) -> AsyncGenerator[Item | EndOfList, None]:
    """Yield the events of the last hour, unless `past` is false, and each new event."""
    if past:
        stream = client.events.read(since=shown_now() - EVENTS_KEPT, follow=True)
    else:
        stream = client.events.read(after=await client.events.newest_position(), follow=True)
    yield EndOfList()
    async with aclosing(stream) as events:
        async for event in events:
            document = event_document(occurred_once(event))
            yield Item(text(document, "metadata", "name"), document)


async def _compute_documents(
    client: "Client", kind: Kind, back: timedelta | None
) -> list[Document]:
    if kind is PREEMPTION:
        since = shown_now() - (back or PREEMPTIONS_KEPT)
        return [preemption_document(each) for each in await client.events.preemptions(since=since)]
    if kind is POD:
        return await _pods(client)
    if kind is EVENT:
        since = shown_now() - (back or EVENTS_KEPT)
        events = [event async for event in client.events.read(since=since)]
        return [event_document(event) for event in count_events(events)]
    capacities = None
    if client.session.through == "bus":  # Machines are counted for operators only.
        capacities = [each.document or {} for each in await client.capacity.list()]
    return zones(capacities) if kind is ZONE else instance_types(capacities)


async def _pods(client: "Client") -> list[Document]:
    """Return the Pods of the cluster; raise `CliError` if they are in Kubernetes."""
    for cluster in await client.clusters.list():
        in_kubernetes = field(cluster.document, "spec", "kubernetes") is True
        if in_kubernetes and text(cluster.document, "metadata", "name") == client.cluster:
            raise CliError(
                f"the Pods of {client.org}/{client.cluster} are in Kubernetes: use 'kubectl get"
                " pods'; 'nodepool describe node NAME' names the Pods that a Node waits for"
            )
    listed = await client.fleet.list_pods()
    if listed.since is not None:
        moment = f"{listed.since:%Y-%m-%dT%H:%M:%SZ}"
        print_note(f"Pods that have not changed since {moment} are not shown: the log is too long")
    return [pod_document(pod) for pod in listed.pods]


def zones(capacities: Sequence[Document] | None) -> list[Document]:
    """Return the availability zones, with the number of machines per state if known."""
    from nodepool.contract.catalog import INSTANCE_TYPES, ZONES

    return [
        {
            "kind": ZONE.title,
            "metadata": {"name": zone.name},
            "spec": {"region": zone.region, "access": zone.access.value},
            "status": {
                "types": sum(zone.name in each.zones for each in INSTANCE_TYPES.values()),
                **_counts(capacities, "zone", zone.name),
            },
        }
        for zone in ZONES.values()
    ]


def instance_types(capacities: Sequence[Document] | None) -> list[Document]:
    """Return the instance types, with the number of machines per state if known."""
    from nodepool.contract.catalog import INSTANCE_TYPES

    return [
        {
            "kind": INSTANCE_TYPE.title,
            "metadata": {"name": each.id},
            "spec": {
                "class": each.kind.value,
                "gpus": each.gpus,
                "gpuModel": each.gpu_model,
                "gpuMemoryGB": each.gpu_memory_gb,
                "vcpu": each.vcpu,
                "memoryKi": each.memory_ki,
                "arch": each.arch,
                "superchip": each.superchip,
                "rackSize": each.rack_size,
                "backend": each.backend.value,
                "zones": list(each.zones),
            },
            "status": _counts(capacities, "instanceType", each.id),
        }
        for each in INSTANCE_TYPES.values()
    ]


def _counts(capacities: Sequence[Document] | None, name: str, value: str) -> Mapping[str, int]:
    """Return the sums of the machines of all capacities with the value of a field."""
    if capacities is None:
        return {}
    own = [each for each in capacities if text(each, name) == value]
    return {count: sum(_number(each, count) for each in own) for count in COUNTS}


def _number(document: Document, name: str) -> int:
    value = field(document, name)
    return value if isinstance(value, int) else 0
