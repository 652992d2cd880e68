"""The machines of all zones as operators see them: used, held back, in triage and free."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from console.view.bar import Part, build_bar
from nodepool.contract.counting import format_count
from nodepool.contract.documents import Document, field, text

NAMED_MAX: Final = 3
"""The most types without free machines that the summary names."""


@dataclass(frozen=True, slots=True)
class Stock:
    """The machines of a type in a zone.

    used: the machines that are Nodes. held: those that an operator has held back.
    asked: how many more are to be held back, once Nodes have left them.
    triage: the machines that are out of service. zap: those that are being wiped.
    """

    zone: str
    instance_type: str
    used: int
    held: int
    asked: int
    triage: int
    free: int
    zap: int = 0

    @property
    def total(self) -> int:
        """How many machines there are."""
        return self.used + self.held + self.triage + self.free + self.zap

    @property
    def bar(self) -> tuple[Part, ...]:
        """The machines that are not free, as a bar."""
        has, held = ("has", self.used, ""), ("idl", self.held, "")
        return build_bar((has, held, ("go", self.zap, ""), ("wait", self.triage, "")))


@dataclass(frozen=True, slots=True)
class FleetPage:
    """The machines: how many are free, which types have none, and each zone with its types."""

    title: str
    summary: str
    zones: tuple[tuple[str, tuple[Stock, ...]], ...]


def build_fleet(found: Sequence[Stock]) -> FleetPage:
    """Return the page of the machines."""
    stocks = sorted(found, key=lambda each: (each.zone, each.instance_type))
    zones = groupby(stocks, key=lambda each: each.zone)
    return FleetPage(
        _title(stocks), _summary(stocks), tuple((zone, tuple(each)) for zone, each in zones)
    )


def read_stock(document: Document) -> Stock:
    """Return the machines of a type in a zone, from the capacity that the read model has."""
    held = _number(document, "reclaimed")
    return Stock(
        text(document, "zone"),
        text(document, "instanceType"),
        used=_number(document, "assigned"),
        held=held,
        asked=max(0, _number(document, "toReclaim") - held),
        triage=_number(document, "triage"),
        free=_number(document, "free"),
        zap=_number(document, "zap"),
    )


def _number(document: Document, name: str) -> int:
    value = field(document, name)
    return value if isinstance(value, int) else 0


def _title(stocks: Sequence[Stock]) -> str:
    if not stocks:
        return "There are no machines"
    free, total = sum(each.free for each in stocks), sum(each.total for each in stocks)
    return f"{free:,} of {total:,} machines {'is' if free == 1 else 'are'} free"


def _summary(stocks: Sequence[Stock]) -> str:
    """Return the types that have no free machine: their NodePools wait if they want one."""
    empty = [f"{each.instance_type} in {each.zone}" for each in stocks if not each.free]
    if not empty:
        return "Each type has free machines in each of its zones." if stocks else ""
    more = len(empty) - NAMED_MAX
    names = ", ".join(empty[:NAMED_MAX]) + (
        f" and {format_count(more, 'more type')}" if more > 0 else ""
    )
    return f"None {'is' if len(empty) == 1 else 'are'} free of {names}."
