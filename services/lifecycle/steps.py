"""The steps of a Node: each event leads to the Node from which the next step starts."""

from collections.abc import Generator

from lifecycle import Says
from lifecycle.node import Node
from nodepool.contract.outcomes import CommandOutcome

Steps = Generator[Says, Node, Node]
"""Events about a Node. Each `yield` returns the Node after the event, and so does the generator.

No event follows the deletion of the Node.
"""
CommandSteps = Generator[Says | CommandOutcome, Node, Node]
"""Steps that begin with the outcome of a command."""
