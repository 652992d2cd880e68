"""The steps of a Node: events, of which each leads to the Node that the next step starts from."""

from collections.abc import Generator

from lifecycle import Says
from lifecycle.node import Node
from nodepool.contract.outcomes import CommandOutcome

Steps = Generator[Says, Node, Node]
"""Events about one Node. Each `yield` returns the Node after the event, and at the end it returns.

Nothing follows an event after which the Node is gone.
"""
CommandSteps = Generator[Says | CommandOutcome, Node, Node]
"""The same with the outcome of a command."""
