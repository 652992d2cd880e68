"""The subjects of the front door: what a tenant publishes arrives behind `np.door`."""

from typing import Final

DOOR: Final = "np.door"
"""The prefix of what arrives at the gateway; the log takes nothing with this prefix."""
QUERIES: Final = "np.api"
"""The prefix of the queries that the gateway answers, followed by organisation and query."""
OBSERVER: Final = "agent"
"""The speaker of what agents observe."""
REQUEST_INFO: Final = "Nats-Request-Info"
"""The header with which the server names the sender of a message from another account."""
_LOG: Final = "np"


def door_of(subject: str) -> str:
    """Return where the gateway hears what a tenant publishes on `subject`, as `np.cmd.acme.>`."""
    first, _, rest = subject.partition(".")
    if first != _LOG or not rest:
        raise ValueError(f"{subject} is not a subject of the control plane")
    return f"{DOOR}.{rest}"


def subject_behind(door: str) -> str:
    """Return the subject on which a tenant published what arrives at the gateway on `door`."""
    if not door.startswith(f"{DOOR}.") or door == f"{DOOR}.":
        raise ValueError(f"{door} is not a subject of the front door")
    return f"{_LOG}.{door[len(DOOR) + 1 :]}"
