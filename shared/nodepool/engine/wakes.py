"""The message that wakes a service when something is due, and its subject."""

from datetime import datetime, timedelta

from nodepool.contract.events import Wake
from nodepool.contract.keys import UNNAMED, token
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope

FRESH = timedelta(milliseconds=500)
"""How old a `Wake` may be when its outputs are proposed; an older `Wake` is passed over."""
CLOCK = "clock"
"""The service token in the subject of a `Wake`."""


def wake_subject(service: str) -> str:
    """Return the literal subject of the wakes of a service."""
    return f"np.evt.{CLOCK}.{token(service)}.{UNNAMED}.{UNNAMED}.{Wake.__name__}"


def wake(service: str, due: datetime, after: int) -> Envelope[Wake]:
    """Return the message that wakes a service for the keys that are due at a moment.

    `after` is the position that the replica has read to. The message is stored only if the `Wake`
    at `last_wake` is still the last `Wake` of the service, so that replicas which wake the service
    for the same reason store one message.
    """
    return Envelope[Wake].model_construct(
        id=f"{service}.{due.timestamp():.6f}.{after}",
        type=Wake.__name__,
        source=CLOCK,
        subject=service,
        time=due,
        data=Wake(service=service, due=due),
    )


def is_never_old(_wake: Entry) -> bool:
    """Return False, for a driver that processes each `Wake` in the moment in which it is stored."""
    return False
