"""Commands of a terminal that show and change the same as a page."""

from collections.abc import Iterable
from shlex import quote
from typing import Final, NamedTuple

from console.view.model import Place

USUAL_CLUSTER: Final = "demo"
"""The cluster that `nodepool` takes without `--cluster`."""


class Shell(NamedTuple):
    """A command line, and the program that it is for."""

    program: str
    line: str


def nodepool(*words: str, cluster: str = USUAL_CLUSTER) -> Shell:
    """Return a command of `nodepool`, which names the cluster unless it is the default."""
    where = () if cluster == USUAL_CLUSTER else ("--cluster", cluster)
    return Shell("nodepool", " ".join(map(quote, ("nodepool", *words, *where))))


def kubectl(*words: str) -> Shell:
    """Return a command of `kubectl`, for a cluster that has an agent."""
    return Shell("kubectl", " ".join(map(quote, ("kubectl", *words))))


def list_scale_commands(pool: Place, target: int) -> tuple[Shell, ...]:
    """Return the commands that scale a NodePool."""
    return (
        nodepool("scale", "nodepool", pool.name, "--target", str(target), cluster=pool.cluster),
        kubectl("scale", "nodepool", pool.name, f"--replicas={target}"),
    )


def list_delete_commands(pool: Place) -> tuple[Shell, ...]:
    """Return the commands that delete a NodePool."""
    return (
        nodepool("delete", "nodepool", pool.name, cluster=pool.cluster),
        kubectl("delete", "nodepool", pool.name),
    )


def list_show_commands(pool: Place) -> tuple[Shell, ...]:
    """Return the commands that show a NodePool, and why it lacks Nodes."""
    return (
        nodepool("explain", "nodepool", pool.name, cluster=pool.cluster),
        kubectl("describe", "nodepool", pool.name),
    )


def get_yaml(pool: Place) -> Shell:
    """Return the command that prints a NodePool as YAML."""
    return nodepool("get", "nodepool", pool.name, "-o", "yaml", cluster=pool.cluster)


def list_past_commands(shells: Iterable[Shell], at: str) -> tuple[Shell, ...]:
    """Return those of the commands that can show the past, so that they show a moment."""
    own = (shell for shell in shells if shell.program == "nodepool")
    return tuple(Shell(shell.program, f"{shell.line} --at {quote(at)}") for shell in own)


def list_edit_commands(pool: Place) -> tuple[Shell, ...]:
    """Return the commands that edit a NodePool."""
    return (
        nodepool("edit", "nodepool", pool.name, cluster=pool.cluster),
        kubectl("edit", "nodepool", pool.name),
    )


def list_node_commands(verb: str, node: Place) -> tuple[Shell, ...]:
    """Return the commands for an action on a Node; kubectl has only some of them."""
    name = "ack" if verb == "acknowledge" else verb
    own = nodepool(name, node.name, cluster=node.cluster)
    if verb in ("cordon", "uncordon", "drain"):
        return own, kubectl(verb, node.name)
    return (own,)
