"""The units of comparison: a NodePool, a Node with its Pods, or all Pods that wait for a Node."""

from typing import Final, Literal, NamedTuple, get_args

Kind = Literal["NodePool", "Node", "Pod"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Key(NamedTuple):
    """A NodePool or a Node on both sides, by its name; or all waiting Pods together."""

    kind: Kind
    name: str


WAITING: Final = Key("Pod", "waiting")
"""The key of all Pods that wait for a Node."""


def pool_key(name: str) -> Key:
    """Return the key of a NodePool."""
    return Key("NodePool", name)


def node_key(name: str) -> Key:
    """Return the key of a Node."""
    return Key("Node", name)
