"""Secrets that an inventory refers to, read at the moment at which they are needed."""

from collections.abc import Mapping

from metal.inventory.model import Reference
from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.files import one_line


def read_secret(field: str, reference: Reference, environment: Mapping[str, str]) -> str:
    """Return the line that a reference leads to.

    Raise AccessError if there is no such line; the error names the reference, and no content.
    """
    if reference.file:
        return one_line(field, reference.file)
    text = environment.get(reference.environment, "").strip()
    if not text:
        raise AccessError(field, f"the variable {reference.environment} is not set")
    if not text.isprintable():
        cause = f"the variable {reference.environment} must hold one line of text"
        raise AccessError(field, cause)
    return text
