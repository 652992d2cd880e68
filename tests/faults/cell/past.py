"""Compares the output of `--at` with a replay of all messages."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from aggregator.decide import SERVICE
from bench.load import pool
from faults.cell.bus import Message
from nodepool.cli.app import cli
from nodepool.cli.settings import Settings
from nodepool.client import Client
from nodepool.client.past.backend import PastBackend
from nodepool.client.past.history import Extent, History
from nodepool.client.past.objects import PastObjects
from nodepool.client.session import Session
from nodepool.contract.log import Entry, LogId
from nodepool.engine.past import state_of
from nodepool.engine.replica import Replica
from nodepool.nats.wire.connection import FaultListener

COMMANDS = (
    ("get", "np,no,qt,cap,cl", "-o", "json"),
    ("get", "np", "-A", "-o", "wide", "--show-labels"),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Session(Session):
    """A session with the state after a replay of all messages so far."""

    def __init__(self, replica: Replica[Any, Any, Any], last: Message, log: LogId) -> None:
        path = pool(0, 0)
        super().__init__(org=path.org, cluster=path.cluster)
        assert SERVICE.projection is not None
        self.moment = _time_of(last)
        history = History(None, None, Extent(log, 1, last.position, self.moment))
        objects = PastObjects(SERVICE.projection, state_of(replica), log, last.position)

        async def read() -> PastObjects:
            return objects

        backend = PastBackend(path.org, path.cluster)
        backend.show(history, read)
        self.__dict__["backend"] = backend

    async def open(self, on_fault: FaultListener | None = None) -> None:
        """Do nothing: this session has no connection."""


class _Client(Client):
    def __init__(self, session: Session) -> None:
        super().__init__(org=session.org, cluster=session.cluster)
        self._use(session)


@dataclass(frozen=True, slots=True)
class _Settings(Settings):
    session: Session | None = None

    def _client(self) -> Client:
        assert self.session is not None
        return _Client(self.session)


class Replay:
    """Reads all messages in order, as a service without a snapshot does."""

    def __init__(self, log: LogId) -> None:
        self._log = log
        self._replica = Replica[Any, Any, Any](SERVICE, log=log)
        self._last: Message | None = None

    def read(self, message: Message) -> None:
        """Read the next message."""
        self._last = message
        if SERVICE.wants(message.subject):
            position, _, subject, headers, content = message
            self._replica.read(Entry(position, _time_of(message), subject, content, headers))

    def shown(self) -> Sequence[str]:
        """Return the output of commands after the messages so far."""
        assert self._last is not None
        session = _Session(self._replica, self._last, self._log)
        settings = _Settings(url="", org=session.org, cluster=session.cluster, session=session)
        return [_run(command, settings) for command in COMMANDS]


def shown_at(command: Sequence[str], position: int, url: str, archive: str) -> str:
    """Return the output of a command at a position of the past."""
    path = pool(0, 0)
    settings = Settings(url=url, org=path.org, cluster=path.cluster)
    at = ("--at", str(position), "--archive", archive)
    return _run((*command, *at), settings)


def _run(command: Sequence[str], settings: Settings) -> str:
    """Return the output of a command, and its exit code."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = cli.main(command, prog_name="nodepool", standalone_mode=False, obj=settings)
    return f"{out.getvalue()}\n{code or 0}"


def _time_of(message: Message) -> datetime:
    return EPOCH + timedelta(microseconds=message.time)
