"""The streams of the control plane: the log, the snapshots, and the buckets of the read model."""

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from nodepool.contract.buckets import BUCKETS
from nodepool.contract.log import LOG, SUBJECTS, LogId
from nodepool.contract.log import SNAPSHOTS as STREAM_OF_SNAPSHOTS
from nodepool.nats.log.api import Json, parse_time, request
from nodepool.nats.log.stream_settings import has_settings, intake_fault
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import (
    STREAM_NOT_FOUND,
    Denied,
    ServerRefusal,
)
from nodepool.nats.wire.waiting import cancel

STREAM = LOG
"""The log."""
DUPLICATE_WINDOW_NS = 100_000_000
"""The `duplicate_window` of a stream: the shortest that the server accepts.

A `Nats-Msg-Id` applies to the whole stream, whichever program used it first, so nothing here relies
on it.
"""
SNAPSHOTS = STREAM_OF_SNAPSHOTS
IDENTITY = "nodepool.log"
"""The key of the log's identity in the metadata of its stream."""

Config = Mapping[str, object]
"""A stream's configuration as the JetStream API takes it."""

_FIXED_SETTING = 10052
"""The API's code for a setting that can no longer be changed."""
_OTHER_SETTINGS = 10058
"""The API's code for a stream that already exists under this name with other settings."""


class StreamInfo(NamedTuple):
    """A stream as it is on the server.

    created: when the stream was created, in the server's format.
    time: the moment of this information, by the clock that also sets the times of messages.
    metadata: the metadata that programs have set on the stream.
    messages: how many messages it holds.
    last: the position of its newest message; 0 if it never had a message.
    first: the position of its oldest message, or of the next message if it holds none.
    is_sealed: whether it is sealed: it takes no more messages, and no update can change that.
    fault: why it takes no messages now; empty if it takes messages.
    bytes: the size of its messages.
    is_purgeable: whether it can be trimmed, which is fixed when a stream is created.
    """

    created: str
    time: datetime
    metadata: Mapping[str, str]
    messages: int
    last: int
    first: int = 1
    is_sealed: bool = False
    fault: str = ""
    bytes: int = 0
    is_purgeable: bool = True

    @property
    def log(self) -> LogId:
        """The identity of a log: from its metadata, or derived from its creation time.

        So every program gives a log of an earlier release the same identity. The log keeps it even
        if an earlier release, which does not know the identity, updates the stream.
        """
        of_creation = hashlib.sha256(self.created.encode()).hexdigest()[:16]
        return LogId(self.metadata.get(IDENTITY) or of_creation)


def streams(replicas: int = 1) -> dict[str, Config]:
    """Return the configuration of each stream by name; `replicas` is the number of copies.

    Without snapshots a trimmed log is of no use, so they are synced, too. Of buckets one copy is
    not: after a kill while messages are about to expire, a server (2.15.1) never flushes it again.
    """
    rebuildable: dict[str, object] = {"persist_mode": "async"} if replicas == 1 else {}
    buckets = {f"KV_{bucket}": _bucket(bucket, replicas) | rebuildable for bucket in BUCKETS}
    return {STREAM: _log(replicas), SNAPSHOTS: _snapshots(replicas), **buckets}


def _log(replicas: int) -> dict[str, object]:
    return {
        "name": STREAM,
        "subjects": list(SUBJECTS),
        "storage": "file",
        "num_replicas": replicas,
        "allow_atomic": True,
        "allow_direct": True,
        "deny_delete": True,
        "discard": "new",
        "duplicate_window": DUPLICATE_WINDOW_NS,
    }


def _snapshots(replicas: int) -> dict[str, object]:
    return {
        "name": SNAPSHOTS,
        "subjects": ["np-snapshot.>"],
        "storage": "file",
        "num_replicas": replicas,
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_msg_ttl": True,
    }


def _bucket(bucket: str, replicas: int) -> dict[str, object]:
    return {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "storage": "file",
        "num_replicas": replicas,
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "deny_delete": True,
        "discard": "new",
    }


async def provision(client: BusClient, replicas: int = 1) -> LogId:
    """Create every missing stream, update streams with other settings, return the log's identity.

    Any number of programs may do so at the same time; nothing that is stored is lost. Raises Denied
    if there is something to change, and the user may not change streams.
    """
    configs = streams(replicas)
    log = await _provision_log(client, configs.pop(STREAM))
    for name, config in configs.items():
        await provision_stream(client, name, config)
    return log


async def provision_stream(client: BusClient, name: str, config: Config) -> None:
    """Create a stream, or update it if it has other settings.

    A user who may only look at streams can do so too while nothing has to change.

    A stream that is written asynchronously can have only one copy, and that setting is fixed: if
    more copies are wanted, the stream is made anew and filled. One copy stays as it was created.

    A sealed stream stays as it is: its content can be read, and its writer reports what is wrong.
    """
    info = await whole_stream_info(client, name)
    if info is not None and has_settings(info["config"], config):
        return
    try:
        await _change(client, "CREATE", name, config)
        return
    except Denied:
        if info is not None and _is_sealed(info["config"]):
            return
        raise
    except ServerRefusal as refusal:
        if refusal.code != _OTHER_SETTINGS:
            raise
    try:
        await _change(client, "UPDATE", name, config)
    except ServerRefusal as refusal:
        if info is not None and _is_sealed(info["config"]):
            return
        if refusal.code != _FIXED_SETTING or name == STREAM:
            raise
        if config["num_replicas"] == 1:
            await _change(client, "UPDATE", name, _written_otherwise(config))
        else:
            await _change(client, "DELETE", name)
            await _change(client, "CREATE", name, config)


def _written_otherwise(config: Config) -> Config:
    """Return the configuration of a stream that has the other `persist_mode`."""
    synced = {key: value for key, value in config.items() if key != "persist_mode"}
    return synced if synced != config else {**config, "persist_mode": "async"}


async def _change(client: BusClient, verb: str, name: str, config: Config | None = None) -> None:
    """Send a request that changes a stream; raise Denied at once if the user may not send it.

    After a denial nothing more is sent, because the server logs each denial.
    """
    subject = f"$JS.API.STREAM.{verb}.{name}"
    if client.may_change_streams:
        with client.await_denial(subject) as denied:
            changing = asyncio.create_task(request(client, subject, config))
            try:
                await asyncio.wait((changing, denied), return_when=asyncio.FIRST_COMPLETED)
                if changing.done():
                    changing.result()
                    return
                client.may_change_streams = False
            finally:
                await cancel(changing)
    raise Denied(0, subject)


def _is_sealed(config: object) -> bool:
    return isinstance(config, dict) and bool(config.get("sealed"))


async def _provision_log(client: BusClient, config: Config) -> LogId:
    """Create or update the log; store its identity in its metadata, and keep other metadata."""
    info = await stream_info(client, STREAM)
    while info is None:
        try:
            await _change(client, "CREATE", STREAM, config)
        except ServerRefusal as refusal:
            if refusal.code != _OTHER_SETTINGS:  # Otherwise another program has just created it.
                raise
        info = await stream_info(client, STREAM)
    kept = {key: text for key, text in info.metadata.items() if not key.startswith("_nats.")}
    metadata = {**kept, IDENTITY: info.log}
    fixed = {} if info.is_purgeable else {"deny_purge": True}
    await provision_stream(client, STREAM, {**config, **fixed, "metadata": metadata})
    return info.log


async def stream_info(client: BusClient, stream: str) -> StreamInfo | None:
    """Return a stream as it is now; None if the stream does not exist."""
    info = await whole_stream_info(client, stream)
    if info is None:
        return None
    config, state = info["config"], info["state"]
    assert isinstance(config, dict), "a stream's info has its configuration"
    assert isinstance(state, dict), "a stream's info has a state"
    metadata = config.get("metadata") or {}
    return StreamInfo(
        created=str(info["created"]),
        time=parse_time(str(info["ts"])),
        metadata=metadata,
        messages=int(state["messages"]),
        last=state["last_seq"],
        first=max(1, int(state["first_seq"])),
        is_sealed=bool(config.get("sealed")),
        fault=intake_fault(config, state, SUBJECTS if stream == STREAM else ()),
        bytes=int(state["bytes"]),
        is_purgeable=not config.get("deny_purge"),
    )


async def whole_stream_info(client: BusClient, stream: str, filter: str = "") -> Json | None:
    """Return the server's full info of a stream; None if the stream does not exist.

    filter: also has the state list the subjects that match.
    """
    body = {"subjects_filter": filter} if filter else None
    try:
        return await request(client, f"$JS.API.STREAM.INFO.{stream}", body)
    except ServerRefusal as refusal:
        if refusal.code != STREAM_NOT_FOUND:
            raise
        return None
