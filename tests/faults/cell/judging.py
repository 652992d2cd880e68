"""Judges the end of a run: each message, and moments of the past."""

import asyncio
import time
from collections.abc import Collection
from contextlib import aclosing
from pathlib import Path

from nats.aio.client import Client

from faults.cell.audit import Audit, archived, hot
from faults.cell.bus import Message, Record, Sender
from faults.cell.past import COMMANDS, Replay, shown_at
from faults.cell.report import Report
from nodepool.nats.log.streams import StreamInfo

SHOWN = 500
"""How many characters of an output a fault quotes."""


class Judge:
    """Reads archive and log once, from the first message to the last.

    moments: the positions that are looked at with `--at` as well.
    """

    def __init__(self, report: Report, archive: Path, url: str, moments: Collection[int]) -> None:
        self._report, self._archive, self._url = report, archive, url
        self._moments = moments
        self._longest_s, self._compared = 0.0, 0

    async def judge(self, client: Client, log: StreamInfo, record: Record, sender: Sender) -> None:
        """Add faults to the report."""
        audit, replay, end = Audit(record, sender), Replay(log.log), 0
        for message in archived(self._archive):
            audit.archived(message)
            end = message.position
            await self._replay(replay, message)
        audit.begin_hot(log.first)
        async with aclosing(hot(client, log.first, log.last)) as messages:
            async for message in messages:
                audit.hot(message)
                if message.position > end:
                    await self._replay(replay, message)
        audit.end(log.last, end)
        self._report.faults += audit.faults
        self._report.figures |= {
            "messages audited": log.last,
            "of these acknowledged to publishers": len(sender.stored),
            "positions trimmed": log.first - 1,
            "archived up to": end,
            "moments of the past compared": self._compared,
            "the longest --at, s": round(self._longest_s, 1),
        }

    async def _replay(self, replay: Replay, message: Message) -> None:
        """Read a message, and compare the output of commands at some moments."""
        replay.read(message)
        if message.position not in self._moments:
            return
        where = message.position, self._url, str(self._archive)
        expected = await asyncio.to_thread(replay.shown)
        for number, command in enumerate(COMMANDS):
            began = time.monotonic()
            shown = await asyncio.to_thread(shown_at, command, *where)
            self._longest_s = max(self._longest_s, time.monotonic() - began)
            if shown != expected[number]:
                text = f"{' '.join(command)} --at {message.position} shows {shown[:SHOWN]}"
                self._report.faults.append(f"{text} instead of {expected[number][:SHOWN]}")
        self._compared += 1
