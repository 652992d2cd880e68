"""What the driver counts, and whether its inventory is refused."""

from typing import Final

from nodepool.contract.metal_metrics import INVENTORIES, INVENTORY_REFUSED, READING_SECONDS
from nodepool.host.families import Families

ANSWERED: Final = "answered"
FAILED: Final = "failed"
USED: Final = "used"
REFUSED: Final = "refused"


class Figures:
    """The counts of one driver; each begins at 0."""

    def __init__(self, families: Families) -> None:
        self._readings = families.histograms(READING_SECONDS)
        self._inventories = families.counters(INVENTORIES)
        self._refused = families.gauge(INVENTORY_REFUSED)
        for result in (ANSWERED, FAILED):
            self._readings[result,]  # Creates it.
        for result in (USED, REFUSED):
            self._inventories[result,].inc(0)

    def count_reading(self, seconds: float, *, has_failed: bool) -> None:
        """Count a reading of a controller that was asked."""
        self._readings[FAILED if has_failed else ANSWERED,].observe(seconds)

    def count_inventory(self, *, is_refused: bool) -> None:
        """Count an inventory that was read; the file stays used or refused until the next one."""
        self._refused.set(is_refused)
        self._inventories[REFUSED if is_refused else USED,].inc()
