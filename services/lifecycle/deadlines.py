"""The lengths of locks, reboots, verifications and silences; `table` says what happens at the end.

`nodepool.contract.timetable` holds the lengths that others use too: the minutes of a preemption,
`BOOT_MAX` for joining the cluster, `ANSWER_WITHIN` for a cordon or a drain, and `RELAPSE`.
"""

from datetime import timedelta
from typing import Final

USUALLY: Final = timedelta(seconds=1)
"""If a machine answers within this time, as machines usually do, no deadline is published.

It is also the step by which `meet_deadline` tries again until the request is known to be stored.
"""
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
