"""The columns that `get` prints for each type of object."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nodepool.cli.documents import Document, condition, field, labels
from nodepool.cli.documents import text as text_at
from nodepool.cli.layout import Table
from nodepool.cli.names import CAPACITY, NODE, NODEPOOL, QUOTA, Kind
from nodepool.cli.times import age

ABSENT = "-"
POOL_LABEL = "compute.coreweave.com/node-pool"
TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"

Cell = Callable[[Document], str]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    cell: makes its text from an object.
    wide: whether it is only printed with `-o wide`.
    """

    title: str
    cell: Cell
    wide: bool = False


def _at(*path: str) -> Cell:
    return lambda document: text_at(document, *path)


def _condition(kind: str, name: str) -> Cell:
    return lambda document: condition(document, kind, name)


def _label(key: str) -> Cell:
    return lambda document: labels(document).get(key, "")


def _node_status(document: Document) -> str:
    ready = condition(document, "CWRegistered", "status") == "True"
    cordoned = field(document, "spec", "unschedulable") is True
    return ("Ready" if ready else "NotReady") + (",SchedulingDisabled" if cordoned else "")


def _node_removal(document: Document) -> str:
    is_leaving = condition(document, "CWNodeRemoval", "status") == "True"
    return condition(document, "CWNodeRemoval", "reason") if is_leaving else ""


def _quota_left(document: Document) -> str:
    limit, used = field(document, "limit"), field(document, "used")
    if not isinstance(limit, int) or not isinstance(used, int):
        return ""
    return str(max(limit - used, 0))


AGE = "AGE"
_NAME = Column("NAME", _at("metadata", "name"))
_AGE = Column(AGE, _at("metadata", "creationTimestamp"))

COLUMNS: dict[Kind, Sequence[Column]] = {
    NODEPOOL: (
        _NAME,
        Column("INSTANCE TYPE", _at("spec", "instanceType")),
        Column("TARGET", _at("spec", "targetNodes")),
        Column("INPROGRESS", _at("status", "inProgress")),
        Column("CURRENT", _at("status", "currentNodes")),
        Column("VALIDATED", _condition("Validated", "reason")),
        Column("CAPACITY", _condition("Capacity", "reason")),
        Column("QUOTA", _condition("Quota", "reason")),
        Column("ALLOCATEDNODES", _at("status", "allocatedNodes"), wide=True),
        Column("ALLOCATED", _condition("Allocated", "status"), wide=True),
        Column("ALLOCATEDREASON", _condition("Allocated", "reason"), wide=True),
        Column("ACCEPTED", _condition("Accepted", "reason"), wide=True),
        _AGE,
    ),
    NODE: (
        _NAME,
        Column("STATUS", _node_status),
        Column("NODEPOOL", _label(POOL_LABEL)),
        Column("INSTANCE TYPE", _label(TYPE_LABEL)),
        Column("ACTIVE", _condition("CWActive", "status")),
        Column("PHASE", _at("status", "phase"), wide=True),
        Column("REMOVAL", _node_removal, wide=True),
        Column("ZONE", _label(ZONE_LABEL), wide=True),
        _AGE,
    ),
    QUOTA: (
        Column("ORG", _at("org"), wide=True),
        Column("ZONE", _at("zone")),
        Column("INSTANCE TYPE", _at("instanceType")),
        Column("LIMIT", _at("limit")),
        Column("USED", _at("used")),
        Column("LEFT", _quota_left),
    ),
    CAPACITY: (
        Column("ZONE", _at("zone")),
        Column("INSTANCE TYPE", _at("instanceType")),
        Column("FREE", _at("free")),
        Column("ASSIGNED", _at("assigned")),
        Column("TRIAGE", _at("triage")),
    ),
}


def pools_table(documents: Sequence[Document]) -> str:
    """NodePools as `get nodepools` prints them."""
    now = datetime.now(UTC)
    rows = [row(NODEPOOL, document, now, wide=False) for document in documents]
    return "\n".join(Table(header(NODEPOOL, wide=False)).lines(rows))


def header(kind: Kind, *, wide: bool) -> list[str]:
    """The titles of the columns."""
    return [column.title for column in _columns(kind, wide=wide)]


def row(kind: Kind, document: Document, now: datetime, *, wide: bool) -> list[str]:
    """The cells of an object; `-` for a value that is missing."""
    cells = []
    for column in _columns(kind, wide=wide):
        text = column.cell(document)
        cells.append((age(text, now) if column.title == AGE else text) or ABSENT)
    return cells


def _columns(kind: Kind, *, wide: bool) -> list[Column]:
    return [column for column in COLUMNS[kind] if wide or not column.wide]
