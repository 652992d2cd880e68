"""Audits that archive and hot log hold each message once, with code of its own."""

import hashlib
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import pyarrow.parquet as pq
from nats.aio.client import Client

from faults.cell.bus import Message, Record, Sender, digest_of, follow
from nodepool.contract.log import LOG

SHOWN = 3
"""How many faults of a kind are shown."""


def archived(archive: Path) -> Iterator[Message]:
    """Yield each message of each segment that a manifest names, in the order of the manifests."""
    for path in sorted((archive / "manifests").glob("*.json")):
        named = json.loads(path.read_text())["object"]
        segment = archive / named["name"]
        assert hashlib.sha256(segment.read_bytes()).hexdigest() == named["sha256"], path
        for batch in pq.ParquetFile(segment).iter_batches(10_000):
            columns = ("position", "subject", "headers", "content")
            position, subject, headers, content = (batch.column(c).to_pylist() for c in columns)
            time = batch.column("time").cast("int64").to_pylist()
            for number, each in enumerate(position):
                fields = subject[number], dict(headers[number]), content[number]
                yield Message(each, time[number], *fields)


async def hot(client: Client, first: int, last: int) -> AsyncGenerator[Message]:
    """Yield each message of the log, as a plain consumer reads it."""
    if first > last:
        return
    async with aclosing(follow(client, LOG, ">", first)) as found:
        async for messages in found:
            for message in messages:
                yield message
            if messages and messages[-1].position >= last:
                return


class Audit:
    """Compares messages with what was seen live and with what was acknowledged.

    faults: what is wrong.
    """

    def __init__(self, record: Record, sender: Sender) -> None:
        self._record, self._sender = record, sender
        self.faults: list[str] = [f"the live reader: {each}" for each in record.broken[:SHOWN]]
        self._next = 1

    def archived(self, message: Message) -> None:
        """Compare the next message of the archive."""
        self._compare("the archive", message)

    def begin_hot(self, first: int) -> None:
        """Continue with the log, which begins at a position."""
        if first > self._next:
            self._note(f"neither archive nor log has the positions {self._next} to {first - 1}")
        self._next = first

    def hot(self, message: Message) -> None:
        """Compare the next message of the log."""
        self._compare("the log", message)

    def end(self, last: int, archived: int) -> None:
        """Note faults at the end of the log; `archived` is the last position of the archive."""
        if self._next != last + 1 or self._record.last < last:
            live = self._record.last
            self._note(f"read up to {self._next - 1}, live up to {live}, of {last}")
        lost = [each for each in self._sender.stored if each > max(last, archived)]
        if lost:
            self._note(f"acknowledged but stored nowhere: {lost[:SHOWN]}")

    def _compare(self, place: str, message: Message) -> None:
        if message.position != self._next:
            self._note(f"{place} has {message.position} where {self._next} is next")
        self._next = message.position + 1
        live = self._record.digests
        if message.position >= len(live) or live[message.position] != message.digest():
            self._note(f"{place} has another message at {message.position} than was seen live")
        sent = self._sender.stored.get(message.position)
        if sent is not None and sent != digest_of(message.subject, message.content):
            self._note(f"{place} has another message at {message.position} than was sent")

    def _note(self, fault: str) -> None:
        if len(self.faults) < 10 * SHOWN:
            self.faults.append(fault)
