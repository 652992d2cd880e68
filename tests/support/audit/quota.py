"""Rules for quota: what is granted and held together never grows beyond the limit."""

from nodepool.contract.events import GrantAcknowledged, QuotaChecked, QuotaDeleted, QuotaSet
from nodepool.contract.messages import Message
from support.audit.facts import Acknowledged, Facts, History, Origin, Pool, Violation


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
            gives_all_back = pool.is_deleting(origin.cause)
            acknowledged = Acknowledged(message, origin.cause, gives_all_back)
            pool.acknowledged.add(origin.position, acknowledged)


def _granted(facts: Facts, message: QuotaChecked, origin: Origin) -> None:
    pool = facts.pools[message.uid]
    # A grant covers what its NodePool held, and keeps what was granted to it and not yet
    # acknowledged, as far as the quota service had read.
    read = max(pool.held_as_of(origin.cause), pool.usable_as_of(origin.cause))
    left = max(0, read - pool.reserved_for(origin.cause))
    before = facts.reserved(pool.ledger, origin.cause) + left
    pool.grants.add(origin.position, message)
    check_limit(facts, pool, before, origin, f"{pool.key} is granted {message.granted} Nodes")


def check_limit(facts: Facts, pool: Pool, before: int, origin: Origin, action: str) -> None:
    """Checks what a ledger reserves after an action; a limit set too low later is no violation.

    before: what the ledger reserved before the action.
    origin: of the event that states the action.
    action: what happened, for the text of the violation.
    """
    limit = facts.limits.get(pool.ledger, 0)
    after = facts.reserved(pool.ledger, origin.cause)
    if after > max(limit, before):
        raise Violation(f"{action}: {after} of {limit} in {'/'.join(pool.ledger)} are reserved")
