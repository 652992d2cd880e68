"""What the bus and the archive say that the floor of the log follows from."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from nodepool.archive.floor import SETS_KEPT, Extent, Facts, Keep, Standing
from nodepool.archive.manifests import SnapshotSet, fault_of_content, read_document
from nodepool.archive.names import SETS, period_of_set
from nodepool.archive.storage.store import Store
from nodepool.contract.services import EVERY, OPTIONAL, REPLACEABLE
from nodepool.nats.log.api import leaders_message
from nodepool.nats.log.streams import STREAM, StreamInfo, whole_stream_info
from nodepool.nats.log.trimming import first_since
from nodepool.nats.objects.snapshots import stored_position, stored_subjects
from nodepool.nats.wire.client import BusClient
from nodepool.service import commit_subject

_COMMITS: Final = commit_subject("*")


class SetReader:
    """Reads the newest snapshot sets of an archive back, each of them once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sound = dict[str, SnapshotSet]()

    async def newest(self) -> Sequence[SnapshotSet]:
        """Return the newest sets that are whole, at most SETS_KEPT; raise StoreError."""
        names = [name async for name, _ in self._store.list(SETS) if period_of_set(name)]
        sound = dict[str, SnapshotSet]()
        for name in sorted(names, reverse=True):
            found = self._sound.get(name) or await self._read(name)
            if found is not None:
                sound[name] = found
            if len(sound) == SETS_KEPT:
                break
        self._sound = sound
        return list(sound.values())

    async def _read(self, name: str) -> SnapshotSet | None:
        """Return a set if all of it is as it was stored; None if it is damaged."""
        try:
            found = read_document(SnapshotSet, await self._store.get(name) or b"")
        except ValueError:
            return None
        for snapshot in found.snapshots.values():
            for part in snapshot.parts:
                content = await self._store.get(part.name)
                if content is None or fault_of_content(part, content):
                    return None
        return found


async def find_facts(
    client: BusClient, info: StreamInfo, sets: Sequence[SnapshotSet], read_back: int, keep: Keep
) -> Facts:
    """Return what the floor of a log follows from; raise the errors of `nodepool.nats.log.api`.

    info: the log as it is now.
    """
    since = info.time - timedelta(seconds=keep.seconds)
    return Facts(
        log=Extent(info.first, info.last, info.bytes),
        read_back=read_back,
        sets=[each for each in sets if each.log == info.log],
        services=await find_standings(client, info),
        young=await first_since(client, since, info.last),
    )


async def find_standings(
    client: BusClient, info: StreamInfo, names: Sequence[str] = EVERY
) -> Mapping[str, Standing]:
    """Return what the bus has of each service, but of an optional one only if it was at work."""
    # The server counts a request for a missing message as an error, and these two as none.
    stream = await whole_stream_info(client, STREAM, _COMMITS)
    state = stream["state"] if stream is not None else {}
    assert isinstance(state, dict), "a stream's info has a state"
    committed = state.get("subjects") or {}
    saved = await stored_subjects(client, "np-snapshot.*.manifest")
    standings = dict[str, Standing]()
    for name in names:
        subject = commit_subject(name)
        if name in OPTIONAL and subject not in committed:
            continue
        record = await leaders_message(client, STREAM, subject) if subject in committed else None
        has_saved = any(each.split(".")[1] == name for each in saved)
        position = await stored_position(client, name, info.log) if has_saved else 0
        standings[name] = Standing(
            commit=record.position if record is not None else 0,
            snapshot=position or None,
            is_optional=name in REPLACEABLE,
        )
    return standings
