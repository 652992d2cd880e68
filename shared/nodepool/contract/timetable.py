"""When a preempted Node is drained, and when it is gone.

The minutes are those of https://docs.coreweave.com/platform/capacity-plans/spot-node-pools.
"""

from datetime import timedelta
from typing import Final

DRAIN_AFTER: Final = timedelta(minutes=2)
"""How long after the warning the drain begins."""
GONE_AFTER: Final = timedelta(minutes=7)
"""How long after the warning the Node is gone, drained or not."""
