"""The columns that `get nodepools` prints, with kubectl and with `nodepool`.

`make contracts` writes them into the CRD, `deploy/kubernetes/agent/crd.yaml`. `nodepool.cli.tables`
adds the columns that only the command has, and shows more in some cells. A column of a new field of
the status needs the field in `deploy/build/contracts/crd_status.py`, in `render_status` in
`services/aggregator/status.py`, and in `shown_status` in `services/agent/pools/status.py`.
They are the columns of https://docs.coreweave.com/products/cks/reference/node-pool.
"""

from typing import Final, Literal, NamedTuple


class PrinterColumn(NamedTuple):
    """A printer column of a custom resource.

    See https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#additional-printer-columns.

    path: the fields that lead to the value; of a condition, the one field of that condition.
    condition: the type of the condition that has the value; empty for a field of the object.
    is_wide: whether the column is printed with `-o wide` only.
    """

    name: str
    path: tuple[str, ...]
    type: Literal["string", "integer", "date"] = "string"
    condition: str = ""
    is_wide: bool = False

    @property
    def json_path(self) -> str:
        """The path as kubectl reads it."""
        field = "".join(f".{name}" for name in self.path)
        if not self.condition:
            return field
        return f'.status.conditions[?(@.type=="{self.condition}")]{field}'


NODEPOOL_COLUMNS: Final = (
    PrinterColumn("Instance Type", ("spec", "instanceType")),
    PrinterColumn("Target", ("spec", "targetNodes"), "integer"),
    PrinterColumn("InProgress", ("status", "inProgress"), "integer"),
    PrinterColumn("Current", ("status", "currentNodes"), "integer"),
    PrinterColumn("Validated", ("reason",), condition="Validated"),
    PrinterColumn("Capacity", ("reason",), condition="Capacity"),
    PrinterColumn("Quota", ("reason",), condition="Quota"),
    PrinterColumn("AllocatedNodes", ("status", "allocatedNodes"), "integer", is_wide=True),
    PrinterColumn("Allocated", ("status",), condition="Allocated", is_wide=True),
    PrinterColumn("AllocatedReason", ("reason",), condition="Allocated", is_wide=True),
    PrinterColumn("Accepted", ("reason",), condition="Accepted", is_wide=True),
    PrinterColumn("Age", ("metadata", "creationTimestamp"), "date"),
)
"""The columns after the name, in their order; deprecated values are printed with `-o wide` only."""
