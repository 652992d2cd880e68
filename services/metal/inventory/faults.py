"""A fault of an inventory: where it is, and what to do."""

from dataclasses import dataclass

Path = tuple[str | int, ...]
"""The names and indexes that lead to a field of a document."""
FaultOf = tuple[Path, str]
"""A field of a document, and a sentence that says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one field.

    document: the index of the document.
    path: the field.
    cause: a sentence that says what is wrong and what to write.
    """

    document: int
    path: Path
    cause: str


def show(path: Path) -> str:
    """Return a field as a person writes it, such as `machines[3].controller.address`."""
    parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
    return "".join(parts).removeprefix(".")
