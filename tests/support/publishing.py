"""Events of services that are not part of a world, published as they would publish them."""

from nodepool.contract.messages import Event, envelope_of
from nodepool.contract.subjects import subject_of
from nodepool.engine.world import World


def publish(world: World, event: Event) -> None:
    """Publishes an event on the subject of its speaker."""
    name = type(event).__name__
    envelope = envelope_of(type(event)).model_construct(
        id=f"{name}-{len(world.log.entries)}", type=name, source=event.speaker, data=event
    )
    world.publish(subject_of(event, event.speaker), envelope.encode())
