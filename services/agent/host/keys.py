"""What is compared as one: a NodePool, or a Node with its Pods."""

from typing import Literal, NamedTuple


class Key(NamedTuple):
    """A NodePool or a Node, by its name, on both sides."""

    kind: Literal["NodePool", "Node"]
    name: str


def pool_key(name: str) -> Key:
    """The key of a NodePool."""
    return Key("NodePool", name)


def node_key(name: str) -> Key:
    """The key of a Node."""
    return Key("Node", name)
