"""What is left to do in the end: nothing, for whatever key a service may be asked about.

A service does what its work queue names; one that forgets a key there leaves something undone.

From the log: nothing.
"""

from collections.abc import Iterator
from dataclasses import fields

from immutables import Map

from nodepool.engine.world import World
from nodepool.service import AnyService, Context


def faults(world: World) -> Iterator[str]:
    """Everything that a service would say, if it reconciled each thing that it knows."""
    context = Context(len(world.log.entries), world.log.clock)
    for service in world.services:
        yield from _undone(service, world.state(service.name), context)


def _undone(service: AnyService, state: object, context: Context) -> Iterator[str]:
    reconciler = service.reconciler
    if reconciler is None:
        return
    for key in sorted(_keys(state)):
        first = next(reconciler.reconcile(state, key, context), None)
        if first is not None:
            yield f"{service.name} has left undone for {key}: {type(first).__name__}"


def _keys(state: object) -> set[str]:
    """The key of each thing that a state holds."""
    maps = (getattr(state, field.name) for field in fields(state))  # type: ignore[arg-type]  # A dataclass.
    return {key for each in maps if isinstance(each, Map) for key in each}
