"""The sums as rows: by organisation, NodePool, instance type or compute class."""

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Final, NamedTuple

from nodepool.usage.meter import Sums
from nodepool.usage.nodes import Account
from nodepool.usage.uses import BILLABLE, Use

_HOUR: Final = Decimal(3_600_000_000)
"""The microseconds of an hour."""
_DIGITS: Final = Decimal("0.000001")


class By(StrEnum):
    """What has a row of its own."""

    ORGANISATION = "organisation"
    POOL = "pool"
    TYPE = "type"
    CLASS = "class"


COLUMNS: Final = {
    By.ORGANISATION: ("organisation",),
    By.POOL: ("organisation", "cluster", "pool"),
    By.TYPE: ("instance_type",),
    By.CLASS: ("compute_class",),
}
"""The columns that say what a row is about."""
HOURS: Final = ("billable", "used", "idle", "lost", "joining", "reserved", "lost_by_cause")
"""The columns of Node-hours: the first is the sum of the next three."""


class Row(NamedTuple):
    """The Node-hours of a group, rounded to six digits behind the point.

    group: the values of the columns of what has a row.
    lost_by_cause: the Node-hours that are lost, by cause.
    """

    group: tuple[str, ...]
    billable: Decimal
    used: Decimal
    idle: Decimal
    lost: Decimal
    joining: Decimal
    reserved: Decimal
    lost_by_cause: dict[str, Decimal]


def build_rows(sums: Sums, by: By) -> list[Row]:
    """Return a row for each group that had Nodes, in order.

    Hours are rounded once they are summed up, and what is billable is the sum of what is shown.
    """
    uses = dict[tuple[str, ...], Counter[Use]]()
    causes = dict[tuple[str, ...], Counter[str]]()
    for (account, use, cause), micros in sums.items():
        group = _group(account, by)
        uses.setdefault(group, Counter())[use] += micros
        causes.setdefault(group, Counter())
        if use is Use.LOST:
            causes[group][cause] += micros
    return [_row(group, uses[group], causes[group]) for group in sorted(uses)]


def _row(group: tuple[str, ...], uses: Mapping[Use, int], causes: Mapping[str, int]) -> Row:
    rounded = {use: hours(uses.get(use, 0)) for use in Use}
    return Row(
        group,
        sum((rounded[use] for use in BILLABLE), Decimal(0)),
        rounded[Use.USED],
        rounded[Use.IDLE],
        rounded[Use.LOST],
        rounded[Use.JOINING],
        rounded[Use.RESERVED],
        {cause: hours(micros) for cause, micros in sorted(causes.items())},
    )


def hours(micros: int) -> Decimal:
    """Return microseconds as hours."""
    return (micros / _HOUR).quantize(_DIGITS)


def _group(account: Account, by: By) -> tuple[str, ...]:
    match by:
        case By.ORGANISATION:
            return (account.org,)
        case By.POOL:
            return account.org, account.cluster, account.pool
        case By.TYPE:
            return (account.instance_type,)
        case By.CLASS:
            return (account.compute_class,)
