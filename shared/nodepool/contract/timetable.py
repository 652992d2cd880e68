"""How long a preemption, a boot, an answer and a grace period may take.

The minutes of a preemption are those of
https://docs.coreweave.com/platform/capacity-plans/spot-node-pools.
"""

from datetime import timedelta
from typing import Final

DRAIN_AFTER: Final = timedelta(minutes=2)
"""How long after the warning the drain begins."""
GONE_AFTER: Final = timedelta(minutes=7)
"""How long after the warning the Node is gone, drained or not."""
BOOT_MAX: Final = timedelta(minutes=30)
"""The longest time from `CWNodeAssigned` until the Node has joined; there is no setting.

A machine that has booted, but has not joined its cluster, is late too. After this time the
lifecycle service publishes `CWNodeRegistrationFailed`, and the machine goes to triage. A documented
delivery takes 20 to 30 minutes.
"""
ANSWER_WITHIN: Final = timedelta(minutes=30)
"""How long a machine may take to answer a cordon or a drain; the setting is `answer_minutes`.

The longest grace period of the Pods that a drain ends is added: from the beginning of the drain for
a Node whose Pods an agent reports, otherwise once a report shows that all these Pods end. A cordon
gets no grace period. After this time the machine is treated as dead.
"""
RELAPSE: Final = timedelta(hours=1)
"""A problem that comes back within this time after a reboot for it needs more than a reboot."""
GRACE_MAX_S: Final = 86_400
"""The longest grace period of a Pod, in seconds."""
