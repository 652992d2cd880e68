"""The log lines about a replica itself: its connection, and its role among the replicas."""

import asyncio

from nodepool.host.leadership import Leadership
from nodepool.host.logs import Logger
from nodepool.host.telemetry import Telemetry
from nodepool.nats.wire.connection import Connection


class Reports:
    """Logs when a connection is lost or restored, and the errors that the server reports."""

    def __init__(self, connection: Connection, telemetry: Telemetry) -> None:
        self._connection = connection
        self._telemetry = telemetry
        self._lost_at = 0.0
        self._clock = asyncio.get_running_loop().time
        connection.on_disconnect.append(self._report_loss)
        connection.on_reconnect.append(self._back)
        connection.on_error.append(self._report_error)

    def end(self) -> None:
        """Stop logging disconnects, as the connection is closed on purpose from now on."""
        self._connection.on_disconnect.remove(self._report_loss)

    def _report_loss(self) -> None:
        self._lost_at = self._clock()
        self._telemetry.log.warning("lost connection", cause=self._connection.loss)

    def _back(self) -> None:
        seconds = round(self._clock() - self._lost_at, 3)
        self._telemetry.metrics.count_reconnect()
        self._telemetry.log.info("reconnected", server=self._connection.address, seconds=seconds)

    def _report_error(self, error: Exception) -> None:
        self._telemetry.log.error("bus error", cause=str(error))


class RoleReports:
    """Logs when a replica begins to lead, and when it begins to follow another one."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._role = ""

    def note(self, leadership: Leadership, committed: int) -> None:
        """Log the role of the replica and its committed position if the role has changed."""
        role = "leading" if leadership.leading else "following" if leadership.following else ""
        if role and role != self._role:
            self._role = role
            self._log.info(role, committed=committed)
