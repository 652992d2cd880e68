"""Reading the objects of the control plane: one object, all objects of a kind, or each change."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from nodepool.client.errors import translated
from nodepool.client.names import checked
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.keys import UNNAMED
from nodepool.contract.log import Entry
from nodepool.nats import api
from nodepool.nats.streams import STREAM

Document = Mapping[str, object]
"""An object as Kubernetes would show it, as a JSON value."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object of the read model.

    key: the object's name within the client's organisation and cluster; begins with the names of
      both if the objects of all organisations and clusters were requested.
    document: its content; None for an object that has been deleted.
    position: the position of this version in the bucket's stream.
    """

    key: str
    document: Document | None
    position: int


@dataclass(frozen=True, slots=True)
class Listed:
    """The mark that `watch` yields once, after all objects that existed when the watch began."""


class ReadModel(Session):
    """The part of a client that reads objects."""

    async def get(self, bucket: Bucket, key: str) -> Document | None:
        """Return the object with this key; None if the bucket has no such object.

        The key of a NodePool, Node or cluster is its name; of a machine, `<zone>.<name>`; of a
        quota and of a capacity, `<zone>.<type>`.
        """
        subject = self._prefix(bucket) + checked("name", key)
        with translated(self.url):
            entry = await api.last_message(self._connection, f"KV_{bucket}", subject)
        return document_of(entry) if entry is not None else None

    async def list(
        self, bucket: Bucket, prefix: str = "", *, everywhere: bool = False
    ) -> list[Object]:
        """Return every object of a bucket whose key begins with `prefix`, ordered by key.

        With `everywhere`, the objects of all organisations and clusters are included.
        """
        objects: dict[str, Object] = {}
        async with aclosing(self.watch(bucket, prefix, everywhere=everywhere)) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    break
                objects[change.key] = change
        return [objects[key] for key in sorted(objects) if objects[key].document is not None]

    async def watch(
        self, bucket: Bucket, prefix: str = "", *, everywhere: bool = False
    ) -> AsyncGenerator[Object | Listed, None]:
        """Yield each object whose key begins with `prefix`, then `Listed`, then each change.

        The iterator never ends by itself. A deleted object comes with `document` None. If changes
        follow each other closely, only the last of them may come. With `everywhere`, the objects
        of all organisations and clusters are included.
        """
        subjects = f"$KV.{bucket}." if everywhere else self._prefix(bucket)
        listed = False
        async with self._reader(f"KV_{bucket}", [f"{subjects}>"], newest=True) as reader:
            while True:
                if not listed and reader.pending == 0:
                    listed = True
                    yield Listed()
                for entry in await self._read(reader, endless=listed):
                    key = entry.subject[len(subjects) :]
                    if key.startswith(prefix):
                        yield Object(key, document_of(entry), entry.position)

    async def zone(self) -> str | None:
        """Return the zone of the client's cluster; None if the cluster is not registered."""
        from nodepool.contract.decode import decode
        from nodepool.contract.events import ClusterRegistered
        from nodepool.contract.messages import Envelope

        entry = await self._last_event(
            (ClusterRegistered.speaker, ClusterRegistered.__name__), UNNAMED
        )
        if entry is None:
            return None
        envelope = decode(ClusterRegistered, entry.subject, entry.content, {}, entry.position)
        return envelope.data.zone if isinstance(envelope, Envelope) else None

    async def clusters(self) -> Sequence[tuple[str, str]]:
        """Return organisation and name of each cluster that was ever registered, in their order."""
        filters = {"subjects_filter": f"np.evt.validator.*.*.{UNNAMED}.ClusterRegistered"}
        with translated(self.url):
            info = await api.request(self._connection, f"$JS.API.STREAM.INFO.{STREAM}", filters)
        state = info.get("state")
        subjects = state.get("subjects") if isinstance(state, Mapping) else None
        names = (subject.split(".") for subject in subjects or ())
        return sorted((tokens[3], tokens[4]) for tokens in names)

    def _prefix(self, bucket: Bucket) -> str:
        """Return the subject of the client's objects in a bucket, up to their key."""
        match bucket:
            case "nodepools" | "nodes":
                return f"$KV.{bucket}.{self.org}.{self.cluster}."
            case "quotas" | "clusters":
                return f"$KV.{bucket}.{self.org}."
            case "capacity" | "machines":
                return f"$KV.{bucket}."


def document_of(entry: Entry) -> Document | None:
    """Return the object that a message of a bucket holds; None for the mark of its deletion.

    Also returns None if the content is not a JSON object, or holds lone surrogates, which cannot be
    printed. Another client wrote such content, and the aggregator overwrites it.
    """
    if not entry.content or entry.headers.get("KV-Operation") in ("DEL", "PURGE"):
        return None
    try:
        text = entry.content.decode()  # Rejects lone surrogates; json.loads does not.
        document = json.loads(text)
        if "\\u" in text:  # Escapes can also stand for lone surrogates.
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
