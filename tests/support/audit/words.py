"""Rules for the words of messages."""

import re

from nodepool.contract.messages import Message
from support.audit.facts import Facts, Origin, Violation

WRONG_PLURAL = re.compile(
    r"\b1 (?:more |spot |reclaimed )?(?:Node|machine|domain|NodePool|Pod|rack)s\b"
)
"""A single thing with a plural noun."""


def check(_facts: Facts, message: Message, _origin: Origin) -> None:
    """Check the message of an event for people."""
    text = getattr(message, "message", "")
    if WRONG_PLURAL.search(text):
        raise Violation(f"a plural for a single thing: {text}")
