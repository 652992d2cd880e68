"""What the clock says."""

from datetime import datetime
from typing import ClassVar

from nodepool.contract.keys import UNNAMED, PoolPath
from nodepool.contract.messages import Event


class Wake(Event):
    """A moment that a service waits for has come.

    service: the service that waits.
    due: the moment.
    """

    speaker: ClassVar[str] = "clock"

    service: str
    due: datetime

    @property
    def path(self) -> PoolPath:
        return self.service, UNNAMED, UNNAMED
