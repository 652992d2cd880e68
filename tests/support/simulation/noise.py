"""Unreadable messages on subjects that services read."""

from collections.abc import Callable, Sequence
from random import Random

from nodepool.contract.keys import PoolPath
from nodepool.service import AnyService

UNREADABLE = (
    b"noise",
    b"{}",
    b"[1]",
    b'{"data": {}}',
    b'{"specversion": "1.0", "data": {"x": 1}}',
)
"""Contents that are not messages."""
UNKNOWN_EVENT = "CWNodePainted"


def noise(
    random: Random, services: Sequence[AnyService], some_path: Callable[[], PoolPath]
) -> tuple[str, bytes]:
    """A subject and an unreadable content: of a service's events, a wake, or a dead letter."""
    service = random.choice(services)
    names = [*service.outputs, *service.inputs, UNKNOWN_EVENT]
    pool = ".".join(some_path())
    subject = random.choice(
        (
            f"np.evt.{service.name}.{pool}.{random.choice(names)}",
            f"np.evt.{service.name}.ghosts.prod.ghost.{random.choice(names)}",
            f"np.evt.nobody.acme.prod.p0.{random.choice(names)}",
            f"np.evt.clock.{service.name}._._.Wake",
            f"np.dead.{service.name}",
        )
    )
    return subject, random.choice(UNREADABLE)
