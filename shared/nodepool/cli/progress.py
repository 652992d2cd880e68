"""The progress of a NodePool towards its target, as `rollout status` reports it."""

from dataclasses import dataclass

from nodepool.cli.tables import is_deleting
from nodepool.contract.counting import format_count
from nodepool.contract.documents import Document, condition, field, items, text
from nodepool.explanation.causes import blocking
from nodepool.explanation.documents import facts, target_of


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a NodePool.

    text: the progress as one line.
    missing: what the NodePool still lacks, and what blocks it; empty if not known.
    done: whether the NodePool has reached its target.
    failed: whether it cannot reach its target unless someone changes the NodePool.
    """

    text: str
    missing: str = ""
    done: bool = False
    failed: bool = False


def progress(document: Document) -> Progress:
    """Return how far a NodePool is, by the conditions on its newest generation."""
    name = text(document, "metadata", "name")
    begin = f'Waiting for nodepool "{name}" rollout to finish'
    if is_deleting(document):
        return Progress(f'nodepool "{name}" is being deleted', failed=True)
    if not _is_current(document, "Validated"):
        return Progress(f'Waiting for nodepool "{name}" spec update to be observed...')
    if condition(document, "Validated", "status") == "False":
        message = condition(document, "Validated", "message")
        return Progress(f'nodepool "{name}" is invalid: {message}', failed=True)
    if _is_current(document, "AtTarget") and condition(document, "AtTarget", "status") == "True":
        return Progress(f'nodepool "{name}" successfully rolled out', done=True)
    current = text(document, "status", "currentNodes") or "0"
    target = target_of(document)
    blocked = [f"; {cause.clause}" for cause in blocking(facts(document))]
    missing = f"{current} of {format_count(target)}{''.join(blocked)}"
    return Progress(f"{begin}: {missing}...", missing)


def _is_current(document: Document, kind: str) -> bool:
    """Return whether a condition is about the newest generation; false if it is missing."""
    generation = field(document, "metadata", "generation")
    return any(
        field(each, "type") == kind and field(each, "observedGeneration") == generation
        for each in items(document, "status", "conditions")
    )
