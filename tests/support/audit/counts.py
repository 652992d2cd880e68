"""The rule that no count is negative, in events and in objects of the read model."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from nodepool.contract.buckets import BUCKETS
from nodepool.contract.messages import Message
from nodepool.engine.world import World
from support.audit.facts import Facts, Origin, Violation
from support.documents import documents_of


def check(_facts: Facts, message: Message, _origin: Origin) -> None:
    """Check the numbers of an event, none of which are below 0."""
    for name in _numbers_of(type(message)):
        number = getattr(message, name)
        if number is not None and number < 0:
            raise Violation(f"{name} is {number}")


@cache
def _numbers_of(kind: type[Message]) -> tuple[str, ...]:
    """Return the fields of an event that hold a number."""
    kinds = (int, float, int | None)
    return tuple(name for name, each in kind.model_fields.items() if each.annotation in kinds)


def check_objects(world: World) -> None:
    """Check the numbers in all objects, but for specs: people may choose negative priorities."""
    for bucket in BUCKETS:
        for key, document in documents_of(world, bucket).items():
            observed = {name: each for name, each in document.items() if name != "spec"}
            for path, number in _numbers_in(observed, key):
                if number < 0:
                    raise Violation(f"{path} is {number} in {bucket}")


def _numbers_in(value: object, path: str) -> Iterator[tuple[str, float]]:
    """Yield each number in a value, with the path to it."""
    if isinstance(value, int | float):
        yield path, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _numbers_in(each, f"{path}.{name}")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            yield from _numbers_in(each, path)
