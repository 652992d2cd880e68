"""What is compared as one: a NodePool, a Node with its Pods, or the Pods that wait for one."""

from typing import Final, Literal, NamedTuple, get_args

Kind = Literal["NodePool", "Node", "Pod"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Key(NamedTuple):
    """A NodePool or a Node, by its name, on both sides; or all Pods that wait, as one."""

    kind: Kind
    name: str


WAITING: Final = Key("Pod", "waiting")
"""The Pods that wait for a Node."""


def pool_key(name: str) -> Key:
    """Return the key of a NodePool."""
    return Key("NodePool", name)


def node_key(name: str) -> Key:
    """Return the key of a Node."""
    return Key("Node", name)
