"""Rules for quota: what is granted and held together never grows beyond the limit."""

from nodepool.contract.events import GrantAcknowledged, QuotaChecked, QuotaDeleted, QuotaSet
from nodepool.contract.messages import Message
from support.audit.facts import Facts, History, Origin, Pool, Violation


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks and notes an event about a limit or a grant."""
    match message:
        case QuotaSet():
            ledger = message.org, message.zone, message.instance_type
            facts.limits[ledger] = message.limit
            facts.limited.setdefault(ledger, History()).add(origin.position, message.limit)
        case QuotaDeleted():
            ledger = message.org, message.zone, message.instance_type
            facts.limits.pop(ledger, None)
            facts.limited.setdefault(ledger, History()).add(origin.position, 0)
        case QuotaChecked():
            _granted(facts, message, origin)
        case GrantAcknowledged():
            pool = facts.pools[message.uid]
            pool.acknowledged, pool.last_acknowledged = origin.cause, message
            pool.given_back = pool.is_deleting(origin.cause)


def _granted(facts: Facts, message: QuotaChecked, origin: Origin) -> None:
    pool = facts.pools[message.uid]
    # A grant covers what its NodePool held as far as the quota service had read.
    left = max(0, pool.held_as_of(origin.cause) - pool.reserved)
    before = facts.reserved(pool.ledger) + left
    pool.grants.add(origin.position, message)
    check_limit(facts, pool, before, f"{pool.key} is granted {message.granted} Nodes")


def check_limit(facts: Facts, pool: Pool, before: int, action: str) -> None:
    """Checks what a ledger reserves after an action; a limit set too low later is no violation.

    before: what the ledger reserved before the action.
    action: what happened, for the text of the violation.
    """
    limit, after = facts.limits.get(pool.ledger, 0), facts.reserved(pool.ledger)
    if after > max(limit, before):
        raise Violation(f"{action}: {after} of {limit} in {'/'.join(pool.ledger)} are reserved")
