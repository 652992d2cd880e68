"""One sentence about a NodePool, and the causes behind it."""

from collections.abc import Iterator
from dataclasses import dataclass

from nodepool.contract.counting import format_count
from nodepool.contract.moments import rfc3339
from nodepool.explanation.cause import Cause
from nodepool.explanation.causes import causes
from nodepool.explanation.facts import Facts


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a NodePool does not have what it wants.

    sentence: what it wants, what blocks it, since when, and the smallest change that would help.
    causes: all causes, ranked; empty if the NodePool has what it wants.
    """

    facts: Facts
    sentence: str
    causes: tuple[Cause, ...]

    def document(self) -> dict[str, object]:
        """Return the explanation as a JSON object; an unknown moment is null.

        A cause has one of `actions` for each of `helps`: the same for programs.
        """
        facts = self.facts
        autoscaled = {"message": facts.autoscaled, "logPosition": facts.autoscaled_position}
        return {
            "kind": "Explanation",
            "metadata": {"name": facts.name, "resourceVersion": str(facts.position)},
            "sentence": self.sentence,
            "wanted": {
                "instanceType": facts.instance_type,
                "zone": facts.zone,
                "targetNodes": 0 if facts.deleting else facts.target,
                "currentNodes": facts.current,
                "inProgress": facts.in_progress,
                "grantedNodes": facts.granted or 0,
                **({"queuePosition": facts.queue_position} if facts.queue_position else {}),
                **({"autoscaled": autoscaled} if facts.autoscaled else {}),
            },
            "causes": [_document(rank, cause) for rank, cause in enumerate(self.causes, 1)],
        }


def explain(facts: Facts) -> Explanation:
    """Return why the NodePool does not have what it wants, or that it has it."""
    found = tuple(causes(facts))
    parts = [_format_target(facts)]
    if not found:
        parts.append("nothing blocks it")
        parts.extend(_autoscaler_limit(facts))
    else:
        parts.append(found[0].dated)
        parts.extend(found[0].helps[:1])
    return Explanation(facts, f"{'; '.join(parts)}.", found)


def _format_target(facts: Facts) -> str:
    where = f" in {facts.zone}" if facts.zone else ""
    if facts.deleting:
        return f"NodePool {facts.name} wants no Nodes any more and has {facts.current}"
    wanted = f"{format_count(facts.target)} of {facts.instance_type}{where}"
    has = "them" if facts.current == facts.target else str(facts.current)
    if facts.autoscaled:
        wanted += f" since the autoscaler changed {facts.autoscaled},"
    return f"NodePool {facts.name} wants {wanted} and has {has}"


def _autoscaler_limit(facts: Facts) -> Iterator[str]:
    """Yield that quota keeps the autoscaler from a higher target, whether Pods wait or not.

    The autoscaler says so only when it changes the target.
    """
    limit = facts.limit
    if limit is None or facts.target >= facts.max_nodes or limit.used < (limit.limit or 0):
        return
    quota = "no quota is set" if limit.limit is None else f"quota {limit.limit} has no room"
    yield f"{quota} for a higher target, which the autoscaler may raise up to {facts.max_nodes}"


def _document(rank: int, cause: Cause) -> dict[str, object]:
    return {
        "rank": rank,
        "cause": cause.kind,
        "title": cause.title,
        "message": cause.message,
        "since": None if cause.since is None else rfc3339(cause.since),
        **({"status": cause.status} if cause.status else {}),
        "details": list(cause.details),
        "helps": list(cause.helps),
        "actions": [remedy.document for remedy in cause.remedies],
        "proofs": [{"logPosition": each.position, "about": each.about} for each in cause.proofs],
    }
