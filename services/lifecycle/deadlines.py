"""How long a Node may take for each step; the module `table` says what happens at the end.

The preemption service keeps the two and the seven minutes of a preemption, and `BOOT_MAX` bounds
the first boot; both are in `nodepool.contract.timetable`, because other services use them too.
"""

from datetime import timedelta
from typing import Final

USUALLY: Final = timedelta(seconds=1)
"""A machine that answers within this time, as it usually does, gets no published deadline."""
ANSWER_WITHIN: Final = timedelta(minutes=30)
"""How long a machine may take to answer a cordon or a drain, unless a setting says otherwise."""
LOCK_WITHIN: Final = timedelta(minutes=30)
"""How long a machine may take to evict the Pods that do not tolerate a lock.

The longest grace period of these Pods comes on top. A lock that is still pending then is released,
so that the prolog of the job fails and does not wait for a machine that hangs.
"""
REBOOT_MAX: Final = timedelta(minutes=30)
"""How long a reboot of a Node may take."""
VERIFY_MAX: Final = timedelta(hours=2)
"""How long the verification after a boot may take."""
SETTLES_WITHIN: Final = timedelta(minutes=10)
"""How long after a boot a problem that the reboot cures may last before it counts again."""
RELAPSE: Final = timedelta(hours=1)
"""A problem that comes back within this time after a boot needs more than a reboot."""
UNHEALTHY_AFTER: Final = timedelta(minutes=5)
"""How long a Node is silent until it is unhealthy, unless a setting says otherwise."""
