"""What is compared as one: a NodePool, or a Node with its Pods."""

from typing import Final, Literal, NamedTuple, get_args

Kind = Literal["NodePool", "Node"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Key(NamedTuple):
    """A NodePool or a Node, by its name, on both sides."""

    kind: Kind
    name: str


def pool_key(name: str) -> Key:
    """The key of a NodePool."""
    return Key("NodePool", name)


def node_key(name: str) -> Key:
    """The key of a Node."""
    return Key("Node", name)
