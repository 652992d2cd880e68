"""A quota service with a bug."""

from collections.abc import Generator
from dataclasses import replace

from nodepool.contract.commands import SetQuota
from nodepool.contract.outcomes import CommandOutcome
from nodepool.service import Context
from quota import Hears, Says
from quota.decide import SERVICE as QUOTA
from quota.state import State

FAILING = 666


def broken(
    state: State, message: Hears, context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """As quota decides, but for commands with a high limit."""
    if isinstance(message, SetQuota) and message.limit >= FAILING:
        raise AssertionError("the bug")
    yield from QUOTA.decide(state, message, context)


BROKEN = replace(QUOTA, decide=broken)
