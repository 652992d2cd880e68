"""Which commands about a cordoned Node are accepted: the lifecycle service and advice agree on it.

The causes of a cordon are those that its annotation lists.
"""

from collections.abc import Collection, Iterable
from typing import Final

from nodepool.contract.node_failures import (
    ADMIN_REBOOT,
    PROBLEMS,
    RACK_UNAVAILABLE,
    RESERVATION_PENDING,
)

CORDON_REASON: Final = "node.coreweave.cloud/cordonReason"
"""The annotation that lists the causes of a cordon, other than a removal, with commas between."""
_FOUND: Final = PROBLEMS | {RESERVATION_PENDING, ADMIN_REBOOT, RACK_UNAVAILABLE}
_PRODUCTION, _CORDONED, _DRAINING = "production", "cordoned", "draining"
"""Phases of a Node; this module loads no models, as reading needs none."""


def split_causes(text: str) -> tuple[str, ...]:
    """Return the causes that the annotation of a Node lists; none if the text is empty."""
    return tuple(text.split(",")) if text else ()


def is_found(cause: str) -> bool:
    """Return whether the service itself finds this cause; a command cannot use it as its reason."""
    return _name(cause) in _FOUND


def is_for_rack(cause: str) -> bool:
    """Return whether a Node is cordoned for other Nodes of its rack, which this cause names."""
    return _name(cause) == RACK_UNAVAILABLE


def is_by_command(causes: Collection[str]) -> bool:
    """Return whether only commands keep a Node cordoned, so that `UncordonNode` opens it.

    A Node that is cordoned for its reboot opens by itself.
    """
    return len(causes) > 0 and not any(map(is_found, causes))


def is_for_reboot(causes: Iterable[str]) -> bool:
    """Return whether a command keeps a Node cordoned until it has rebooted."""
    return any(_name(cause) == ADMIN_REBOOT for cause in causes)


def is_own(cause: str) -> bool:
    """Return whether a Node with this cause of its cordon counts as unavailable in its rack.

    A Node that is to reboot is unavailable only once its reboot begins.
    """
    return not is_for_rack(cause) and _name(cause) != ADMIN_REBOOT


def list_kept(causes: Iterable[str]) -> list[str]:
    """Return the causes of a cordon that `UncordonNode` does not end: they end by themselves."""
    return [cause for cause in causes if is_found(cause) and _name(cause) != ADMIN_REBOOT]


def can_be_uncordoned(causes: Collection[str]) -> bool:
    """Return whether `UncordonNode` ends a cause of a cordon; otherwise the command is refused."""
    return not causes or len(list_kept(causes)) < len(causes)


def can_be_reserved(phase: str, causes: Collection[str]) -> bool:
    """Return whether a Node is in production, or is cordoned only for other Nodes of its rack.

    A rack whose Node is reserved for the control plane may be complete only with that Node.
    """
    if phase == _PRODUCTION:
        return True
    return phase == _CORDONED and len(causes) > 0 and all(map(is_for_rack, causes))


def can_be_reserved_uncordoned(phase: str, causes: Iterable[str]) -> bool:
    """Return whether a Node can be reserved once `UncordonNode` has ended what a command began."""
    if phase not in (_CORDONED, _DRAINING):
        return False
    rest = list(filter(is_found, causes))
    return can_be_reserved(_CORDONED if rest else _PRODUCTION, rest)


def _name(cause: str) -> str:
    """Return a cause without what follows it, such as the NVLink domain of a rack."""
    return cause.partition(" ")[0]
