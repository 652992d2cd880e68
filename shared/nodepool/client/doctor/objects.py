"""Whether the read model is current, and whether NodePools get the Nodes that they ask for."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from nodepool.client.client import Client
from nodepool.client.doctor.finding import Finding, note, ok, problem
from nodepool.client.objects import Document
from nodepool.contract.buckets import Bucket
from nodepool.contract.progress import CHECKS

PATIENCE: Final = timedelta(minutes=30)
"""How long a NodePool may lack Nodes for no visible reason before it is reported."""
NAMED_MAX: Final = 5
"""How many NodePools a finding names at most."""
_SEEDS: Final[Sequence[tuple[Bucket, str]]] = (
    ("clusters", "nodepool register cluster NAME --zone ZONE"),
    ("quotas", "nodepool set quota TYPE N"),
    ("capacity", "start what reports machines, or: nodepool fleet add ZONE TYPE N"),
)


async def objects(client: Client) -> AsyncGenerator[Finding, None]:
    """Yield findings about the read model."""
    if not await client.nodepools.catch_up(everywhere=True):
        text = "it does not show what the log has accepted"
        yield problem("read model", text, "see the log of the aggregator")
    else:
        yield ok("read model", "shows what the log has accepted")
    for bucket, fix in _SEEDS:
        if not await client.objects(bucket).list(everywhere=True):
            yield note(bucket, "there are none", fix)
    pools = [each.document for each in await client.nodepools.list(everywhere=True)]
    yield _pools([pool for pool in pools if pool is not None], datetime.now(UTC))


def _pools(pools: list[Document], now: datetime) -> Finding:
    stuck = [_name(pool) for pool in pools if is_stuck(pool, now)]
    if not stuck:
        return ok("NodePools", f"{len(pools)}; each is at its target, on its way, or says why not")
    names = ", ".join(stuck[:NAMED_MAX]) + (" and others" if len(stuck) > NAMED_MAX else "")
    text = f"{len(stuck)} of {len(pools)} for half an hour below target without a reason: {names}"
    return problem("NodePools", text, f"nodepool explain nodepool {stuck[0].rpartition('/')[2]}")


def is_stuck(pool: Document, now: datetime) -> bool:
    """Return whether a NodePool has lacked Nodes for long, and no check says why."""
    spec, status = _part(pool, "spec"), _part(pool, "status")
    target, current = spec.get("targetNodes"), status.get("currentNodes", 0)
    conditions = status.get("conditions")
    if not isinstance(target, int) or not isinstance(current, int) or current >= target:
        return False
    if status.get("inProgress") or not isinstance(conditions, list):
        return False
    dicts = [each for each in conditions if isinstance(each, dict)]
    passed = {each.get("type") for each in dicts if each.get("status") == "True"}
    times = [str(each.get("lastTransitionTime", "")) for each in dicts]
    newest = max(times, default="")
    is_fine = passed.issuperset(CHECKS)
    return is_fine and bool(newest) and _since(newest, now) > PATIENCE


def _since(text: str, now: datetime) -> timedelta:
    try:
        return now - datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return timedelta()


def _name(pool: Document) -> str:
    metadata = _part(pool, "metadata")
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}".strip("/")


def _part(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = document.get(name)
    return part if isinstance(part, Mapping) else {}
