"""Objects of the read model that cannot be stored: parked as dead letters, once each."""

from collections.abc import Callable
from datetime import UTC, datetime

from nodepool.contract.log import Entry
from nodepool.engine.proposal import dead_letter
from nodepool.nats.log.publisher import Publisher
from nodepool.nats.objects.stored_objects import ObjectKey, key_fault, subject_of_object
from nodepool.nats.wire.errors import SEALED_CODE, Conflict, InDoubt, ServerRefusal

MESSAGE_CODES = frozenset({10054, 10097, 10165})
"""The server's error codes for a fault of one message: its size, its headers or its lifetime."""


def is_about_object(refusal: ServerRefusal, *, stores: bool) -> bool:
    """Return whether the server refuses an object for a reason of that object alone.

    stores: whether the server stores other objects. A sealed bucket takes no objects, whatever
        other buckets do.
    """
    return refusal.code != SEALED_CODE and (stores or refusal.code in MESSAGE_CODES)


HEADERS_BYTES = 512
"""The most bytes that the headers of a write take; the server counts them with the content."""


class Parking:
    """The objects that cannot be stored.

    `on_parked` is called with each of these objects and the reason. An object is parked again when
    it has changed, or for another reason. Memory is bounded by the number of existing objects.
    """

    def __init__(
        self, service: str, publisher: Publisher, on_parked: Callable[[ObjectKey, str], None]
    ) -> None:
        self._service = service
        self._publisher = publisher
        self._on_parked = on_parked
        self._parked: dict[ObjectKey, tuple[int, str]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    async def park(self, key: ObjectKey, version: int, content: bytes, cause: str) -> None:
        """Store the dead letter of an object, unless this version has one for this cause.

        Raises InDoubt if the dead letter cannot be stored either; then the object is not parked.
        """
        if self._parked.get(key) == (version, cause):
            return
        entry = Entry(version, datetime.now(UTC), subject_of_object(key), content, {})
        letter = dead_letter(entry, cause)
        try:
            await self._publisher.publish(f"np.dead.{self._service}", letter)
        except (Conflict, ServerRefusal) as error:
            raise InDoubt(f"{key[1]} was not parked: {error}") from error
        self._parked[key] = version, cause
        self._on_parked(key, cause)

    def release(self, key: ObjectKey) -> None:
        """Forget that an object was parked, as the object is stored or gone."""
        self._parked.pop(key, None)


def storing_fault(key: ObjectKey, content: bytes, most: int) -> str | None:
    """Return why an object cannot be stored; None if it can be.

    most: how many bytes a message may have.
    """
    if len(content) + HEADERS_BYTES > most:
        return f"the object has {len(content)} bytes; at most {most - HEADERS_BYTES} are stored"
    return key_fault(key)
