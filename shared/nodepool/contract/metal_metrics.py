"""The metrics that only the driver of real machines exports."""

from typing import Final

from nodepool.contract.metrics import Metric

READING_SECONDS: Final = Metric(
    "nodepool_controller_reading_seconds",
    "histogram",
    "How long a reading of a management controller took until it ended or failed.",
    ("result",),
    (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
)
INVENTORIES: Final = Metric(
    "nodepool_inventories_total",
    "counter",
    "Inventories that were read, by whether they were used or refused as a whole.",
    ("result",),
)
INVENTORY_REFUSED: Final = Metric(
    "nodepool_inventory_refused",
    "gauge",
    "Whether the inventory file as it is now is refused, so that an earlier inventory, or none, is "
    "in force.",
)
OF_THE_DRIVER: Final[tuple[Metric, ...]] = tuple(
    value for value in vars().values() if isinstance(value, Metric)
)
"""All metrics of the driver, in the order of this module."""
