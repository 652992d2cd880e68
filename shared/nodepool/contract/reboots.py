"""What a Node was rebooted for, as the lifecycle service publishes it."""

from datetime import datetime

from nodepool.contract.model import Value


class RebootedFor(Value):
    """A type of problems that a Node was rebooted for, and when the last such reboot ended."""

    type: str
    ended: datetime
