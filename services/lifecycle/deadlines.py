"""How long a Node may take for each step; the module `table` says what happens at the end.

The deadlines of a preemption, `BOOT_MAX`, within which a Node must join its cluster, `RELAPSE` and
`ANSWER_WITHIN` are in `nodepool.contract.timetable`, because others use them too. The preemption
service announces the drain after two minutes; the lifecycle service deletes the Node after seven
(`Exit.gone_by`).
"""

from datetime import timedelta
from typing import Final

USUALLY: Final = timedelta(seconds=1)
"""If a machine answers within this time, as machines usually do, no deadline is published."""
LOCK_WITHIN: Final = timedelta(minutes=30)
"""How long a machine may take to evict the Pods that do not tolerate a lock.

The longest grace period of these Pods is added to this time. A lock that is still pending at the
end is released, so that the prolog of the job fails instead of waiting for a machine that hangs.
"""
REBOOT_MAX: Final = timedelta(minutes=30)
"""How long a reboot of a Node may take."""
VERIFY_MAX: Final = timedelta(hours=2)
"""How long the verification after a boot may take."""
SETTLES_WITHIN: Final = timedelta(minutes=10)
"""How long a problem that a reboot cures may persist after the boot before it counts again."""
UNHEALTHY_AFTER: Final = timedelta(minutes=5)
"""How long a Node must be silent to become unhealthy, unless a setting says otherwise."""
