"""The verdict on a NodePool: how many Nodes it may have under its limit, and why."""

from nodepool.contract.conditions import HEALTHY, Quota
from nodepool.contract.counting import format_count
from nodepool.contract.events import QuotaChecked
from nodepool.contract.keys import ledger_parts
from nodepool.contract.messages import pool_fields
from quota.ledger import Ledger
from quota.pool import Pool


def verdict(pool: Pool, ledger: Ledger) -> QuotaChecked:
    """Return the verdict that grants the whole target if it fits, or else the kept Nodes.

    If the limit was lowered below the reserved Nodes, the grant is no more than the entitled Nodes.
    A target that is covered fits any limit, whatever the reason for the check.
    """
    others = ledger.used - pool.reserved
    covered = pool.entitled if pool.key in ledger.exceeding else pool.covered
    fits = ledger.limit is not None and (pool.target <= covered or ledger.fits(pool))
    granted = pool.target if fits else min(pool.kept, covered)
    beyond = min(pool.beyond, max(0, pool.held - granted))
    is_same = bool(pool.grants) and granted == pool.granted and not pool.withdrawn
    _, zone, instance_type = ledger_parts(pool.ledger)
    return QuotaChecked(
        **pool_fields(pool.key),
        generation=pool.generation,
        uid=pool.uid,
        reason=Quota.UNDER if fits else Quota.NOT_SET if ledger.limit is None else Quota.OVER,
        granted=granted,
        zone=zone,
        instance_type=instance_type,
        limit=ledger.limit,
        used=others + max(pool.reserved, pool.held, granted),
        message=HEALTHY[Quota.UNDER] if fits else _explain(pool, ledger, others, granted, beyond),
        number=pool.number if is_same else pool.number + 1,
        beyond=beyond,
    )


def _explain(pool: Pool, ledger: Ledger, others: int, granted: int, beyond: int) -> str:
    """Return why the target does not fit.

    Return also that the NodePool scales down if Nodes were given back `beyond` the grant.
    """
    text = _over(pool, ledger, others)
    if not beyond:
        return text
    count = f"{format_count(beyond)} beyond the grant of the NodePool"
    end = f"scales down to {granted} by its scaleDownStrategy"
    return f"{text}; the control plane gave back {count}, which {end}"


def _over(pool: Pool, ledger: Ledger, others: int) -> str:
    _, zone, instance_type = ledger_parts(pool.ledger)
    if ledger.limit is None:
        field, value = _target(pool)
        return f"no quota is set for {instance_type} in {zone}, and {field} is {value}"
    count = ledger.holders - (pool.reserved > 0)
    used = f" ({others} used by {count} other pool{'' if count == 1 else 's'})" if count else ""
    target = " ".join(_target(pool))
    if pool.target + others <= ledger.limit:
        quota = f"quota {ledger.limit} for {instance_type}"
        return f"{target} fits {quota}, but a NodePool that has waited longer comes first"
    return f"{target} exceeds quota {ledger.limit} for {instance_type}{used}"


def _target(pool: Pool) -> tuple[str, str]:
    """Return the spec field with the wanted number of Nodes, and the value of that field."""
    if pool.racks is None:
        return "targetNodes", str(pool.target)
    return "targetRacks", f"{pool.racks} ({format_count(pool.target)})"
