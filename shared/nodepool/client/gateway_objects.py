"""Reading and following objects through the gateway."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from nodepool.client.asking import Asker, Reply
from nodepool.client.errors import Refused
from nodepool.client.objects import Document, Listed, Object
from nodepool.client.revisions import Revisions, position_in
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.documents import items, text

OF_A_CLUSTER: Final = ("nodepools", "nodes")
"""The buckets whose objects belong to a cluster of the organisation."""
OF_THE_PLATFORM: Final = ("capacity", "machines")
"""The buckets whose objects belong to no organisation."""
PAGE: Final = 1_000
"""The most objects or events to ask for at a time."""
Asked = dict[str, object]


class GatewayObjects:
    """Reads objects and their changes."""

    def __init__(self, session: Session, asker: Asker) -> None:
        self._session = session
        self._asker = asker
        self._shown: dict[str, int] = {}

    async def get(self, bucket: Bucket, key: str) -> Document | None:
        """Return an object; None if there is no such object."""
        asked = self.ask_about(bucket, name=key, notOlderThan=self._shown.get(bucket, 0))
        return await self.get_one(asked)

    async def get_one(self, asked: Asked) -> Document | None:
        """Return the object that a query asks for; None if there is no such object."""
        reply = await self.ask_for_one("Get", asked)
        found = reply.get("object") if reply is not None else None
        return found if isinstance(found, dict) else None

    async def ask_for_one(self, query: str, asked: Asked) -> Reply | None:
        """Return the answer about an object; None if there is no such object."""
        try:
            return await self._ask_shown(query, asked)
        except Refused as refusal:
            if refusal.reason != "NotFound":
                raise
        return None

    async def _ask_shown(self, query: str, asked: Asked) -> Reply:
        """Return an answer, which may be older than asked for.

        That is so if the read model is behind, or if the log does not say where it ends.
        """
        try:
            return await self._asker.ask(query, asked)
        except Refused as refusal:
            is_unknown = refusal.reason == "Unavailable" and asked.get("current")
            if refusal.reason != "Behind" and not is_unknown:
                raise
        return await self._asker.ask(query, {**asked, "current": False, "notOlderThan": 0})

    def ask_about(self, bucket: Bucket, cluster: str | None = None, **fields: object) -> Asked:
        """Return the fields of a query about the objects of a bucket.

        cluster: empty for all clusters; None for the client's cluster.
        """
        if bucket in OF_THE_PLATFORM:
            self._session.require_bus(f"see the {bucket} of the platform")
        if bucket in OF_A_CLUSTER:
            fields["cluster"] = self._session.cluster if cluster is None else cluster
        return {"kind": bucket, **fields}

    async def catch_up(self, bucket: Bucket, *, everywhere: bool = False) -> bool:
        """Have reading show what the log has accepted; return False if it does not yet."""
        asked = self.ask_about(bucket, "" if everywhere else None, limit=1, current=True)
        try:
            reply = await self._asker.ask("List", asked)
        except Refused as refusal:
            if refusal.reason != "Behind":
                raise
            return False
        self._shown[bucket] = number_in(reply, "position")
        return True

    async def list_all(
        self,
        bucket: Bucket,
        *,
        everywhere: bool,
        not_older_than: int = 0,
    ) -> tuple[list[Object], Revisions]:
        """Return all objects, and the revisions from which to watch them.

        not_older_than: if given, raise `Refused` instead of returning objects that are older.
        """
        found, revisions = list[Object](), Revisions()
        async for page, revision in self._list_pages(
            bucket, {}, not_older_than, everywhere=everywhere
        ):
            found += page
            revisions = revisions.include(revision)
        return found, revisions

    async def _list_pages(
        self, bucket: Bucket, wanted: Asked, not_older_than: int = 0, *, everywhere: bool
    ) -> AsyncGenerator[tuple[Sequence[Object], str], None]:
        """Yield the objects of one answer after the other, and its revision."""
        ask = self._asker.ask if not_older_than else self._ask_shown
        clusters: Sequence[str] = [self._session.cluster]
        if everywhere and bucket in OF_A_CLUSTER:
            # A watch from here on shows the objects of a cluster that is registered meanwhile.
            reply = await self._asker.ask("List", self.ask_about(bucket, "", limit=1))
            yield (), text(reply, "revision")
            clusters = [name for _, name in await self.list_clusters()]
        shown = not_older_than or self._shown.get(bucket, 0)
        for cluster in clusters:
            asked = self.ask_about(bucket, cluster, limit=PAGE, notOlderThan=shown, **wanted)
            while True:
                reply = await ask("List", asked)
                revision = text(reply, "revision")
                asked["continue"] = text(reply, "continue")
                if asked.get("current"):
                    # One answer is enough to know what the other ones have to show.
                    wanted = {**wanted, "current": False}
                    shown = max(shown, number_in(reply, "position"))
                    asked |= {"current": False, "notOlderThan": shown}
                position = position_in(revision)
                yield (
                    [
                        Object(
                            self._key(bucket, _key_in(bucket, cluster, each), everywhere),
                            each,
                            position,
                        )
                        for each in items(reply, "items")
                        if isinstance(each, dict)
                    ],
                    revision,
                )
                if not asked["continue"]:
                    break

    def _key(self, bucket: Bucket, key: str, everywhere: bool) -> str:
        """Return a key of the gateway, which begins with the cluster, as this client shows it."""
        if everywhere:
            return f"{self._session.org}.{key}"
        if bucket in OF_A_CLUSTER:
            return key.removeprefix(f"{self._session.cluster}.")
        return key

    async def list_clusters(self) -> Sequence[tuple[str, str]]:
        """Return organisation and name of each cluster of the organisation, in their order."""
        found, _ = await self.list_all("clusters", everywhere=False)
        return [(self._session.org, each.key) for each in found]

    async def watch(
        self, bucket: Bucket, prefix: str, *, everywhere: bool
    ) -> AsyncGenerator[Object | Listed, None]:
        """Yield objects, `Listed` and changes."""
        stream = self.follow_all(bucket, everywhere=everywhere)
        async with aclosing(stream) as changes:
            async for change in changes:
                if isinstance(change, Listed) or change.key.startswith(prefix):
                    yield change

    async def follow_all(
        self, bucket: Bucket, *, everywhere: bool, fields: str = "", current: bool = False
    ) -> AsyncGenerator[Object | Listed, None]:
        """Yield objects, `Listed` and changes.

        fields: a field selector; an object without the fields comes as deleted once it changes.
        current: whether to begin with all that the log has, if the read model is not behind.
        """
        known, is_first = set[str](), True
        while True:
            before, known, revisions = known, set(), Revisions()
            # A list that comes again shows no older state than the changes before it, unless the
            # read model is behind or the log does not answer.
            wanted: Asked = {"fieldSelector": fields, "current": current or not is_first}
            listing = self._list_pages(bucket, wanted, everywhere=everywhere)
            async with aclosing(listing) as pages:
                # Page by page: all objects at once take more memory than a reader that keeps little
                # of each.
                async for page, at in pages:
                    revisions = revisions.include(at)
                    for each in page:
                        known.add(each.key)
                        yield each
            for key in before - known:
                yield Object(key, None, position_in(revisions.oldest))
            if is_first:
                is_first = False
                yield Listed()
            changes = self.changes_after(bucket, revisions, everywhere=everywhere, fields=fields)
            async with aclosing(changes):
                async for change in changes:
                    (known.add if change.document else known.discard)(change.key)
                    yield change

    async def changes_after(
        self, bucket: Bucket, listed: Revisions, *, everywhere: bool = False, fields: str = ""
    ) -> AsyncGenerator[Object, None]:
        """Yield every change after a list, until the objects have to be listed again."""
        asked = self.ask_about(bucket, "" if everywhere else None, fieldSelector=fields, limit=PAGE)
        revision, newest, held = listed.oldest, listed.newest, dict[str, Object]()
        while (changes := await self._changes_since(asked, revision)) is not None:
            if position_in(revision) < position_in(newest):
                # What is held back may have changed again beyond the end of this answer.
                newest = max(newest, text(changes, "newest"), key=position_in)
            # A gateway of an earlier release may name an older revision.
            revision = max(revision, text(changes, "revision"), key=position_in)
            for change in items(changes, "changes"):
                document = change.get("object") if isinstance(change, Mapping) else None
                key = self._key(bucket, text(change, "key"), everywhere)
                deleted_at = int(version) if (version := text(change, "version")).isdecimal() else 0
                held.pop(key, None)
                held[key] = Object(key, document, position_in(revision), deleted_at)
            # Before that revision, a change may be older than what the newest page has shown.
            if position_in(revision) >= position_in(newest):
                for each in held.values():
                    yield each
                held.clear()

    async def _changes_since(self, asked: Asked, revision: str) -> Reply | None:
        """Return what has changed; None if the objects have to be listed again."""
        try:
            return await self._asker.ask_for_changes({**asked, "since": revision})
        except Refused as refusal:
            if refusal.reason != "Expired":
                raise
            return None


def _key_in(bucket: Bucket, cluster: str, document: Document) -> str:
    """Return the key of an object as the gateway names it in changes."""
    if bucket == "quotas":
        return f"{text(document, 'zone')}.{text(document, 'instanceType')}"
    name = text(document, "metadata", "name")
    return f"{cluster}.{name}" if bucket in OF_A_CLUSTER else name


def number_in(reply: Reply, name: str) -> int:
    """Return a number of a reply; 0 if it has none of this name."""
    value = reply.get(name)
    return value if isinstance(value, int) else 0
