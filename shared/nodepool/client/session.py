"""The client itself: what may be sent, read, followed and waited for."""

import asyncio
import getpass
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Literal, Self
from uuid import uuid4

from nats.errors import Error as NatsError

from nodepool.client.events import KINDS, ObjectEvent, object_events, regards
from nodepool.client.manifests import Manifest, ManifestError, manifest, manifests
from nodepool.client.outcomes import (
    FILTERS_MAX,
    NoOutcome,
    NotFound,
    Outcome,
    Outcomes,
    Refused,
    Speaking,
    TimedOut,
    Unreachable,
    checked,
    misnamed,
    outcome_filters,
    shown,
    silent,
    unanswered,
)
from nodepool.contract.commands import (
    AddMachines,
    ApplyNodePool,
    BreakMachine,
    DeleteNodePool,
    PreemptNode,
    RegisterCluster,
    RepairMachine,
    RunPod,
    ScaleNodePool,
    SetQuota,
    StopPod,
)
from nodepool.contract.events import (
    ClusterRegistered,
    CommandAccepted,
    CWNodePoolDeleted,
    NodePoolValidated,
)
from nodepool.contract.log import Entry
from nodepool.contract.messages import (
    NOBODY,
    Command,
    Envelope,
    Event,
    decode,
    envelope_of,
    subject_of,
    token,
)
from nodepool.contract.model import ConditionStatus, Pod
from nodepool.nats import api, errors
from nodepool.nats.connection import RETRY_S, Connection, connect
from nodepool.nats.reader import Reader
from nodepool.nats.streams import STREAM

URL: Final = "nats://127.0.0.1:4222"
TIMEOUT_S: Final = 10.0
"""How long an outcome is waited for, in seconds, where nothing else is said."""
WINDOW: Final = 256
"""How many commands of one `send_many` are on their way at a time."""
STREAM_NOT_FOUND: Final = 10059
"""The engine's code for a stream that is not there."""
SETTLE_S: Final = 0.2
"""After so many seconds without a NodePool in the read model, `wait` asks the log for it."""

Bucket = Literal["nodepools", "nodes", "quotas", "capacity"]
Document = Mapping[str, object]
Fault = Literal["boot", "registration", "silence"]


@dataclass(frozen=True, slots=True)
class Row:
    """An object of the read model; `document` is None for one that is gone.

    `key` is its name within the client's organisation and cluster, `position` its version.
    """

    key: str
    document: Document | None
    position: int


@dataclass(frozen=True, slots=True)
class Listed:
    """Said once by `Client.watch`, when every object that was there has been given."""


class Client:
    """A connection to the control plane; use it as `async with Client(...) as client`.

    Every method may raise `Unreachable`; one that sends may raise `Refused`, or `NoOutcome` where
    nobody answers within `timeout_s` seconds.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        org: str = "demo",
        cluster: str = "demo",
        timeout_s: float = TIMEOUT_S,
        source: str = "nodepool-client",
    ) -> None:
        self.url = url
        self.org = checked("org", org)
        self.cluster = checked("cluster", cluster)
        self.timeout_s = timeout_s
        self._source = f"{source}/{_user()}"
        self._connection: Connection | None = None

    async def __aenter__(self) -> Self:
        try:
            self._connection = await connect(self.url, self._source)
        except errors.Unreachable:
            raise Unreachable(
                f"no NATS server answers at {shown(self.url)}: start one with 'nodepool up', or set"
                " NODEPOOL_URL"
            ) from None
        except (NatsError, ValueError):
            raise Unreachable(
                f"{shown(self.url)!r} is no address of a server: write it as nats://HOST:PORT"
            ) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            with suppress(NatsError, OSError):
                await self._connection.close()

    # Commands.

    async def apply(
        self, wish: ApplyNodePool | Document | str, *, dry_run: bool = False
    ) -> CommandAccepted:
        """What became of one NodePool, given as a command, a manifest, or its YAML.

        Raises `Refused` for a manifest that cannot be read, too. `send_many` is for many of them.
        """
        command = _wish(wish).model_copy(update={"dry_run": dry_run})
        return await self.send(self.addressed(command))

    async def scale(
        self, pool: str, target: int, *, version: str | None = None, dry_run: bool = False
    ) -> CommandAccepted:
        """Sets a NodePool's target; `version` refuses one changed since that resourceVersion."""
        return await self.send(
            ScaleNodePool(
                **self._of(pool), target_nodes=target, resource_version=version, dry_run=dry_run
            )
        )

    async def delete(
        self, pool: str, *, version: str | None = None, dry_run: bool = False
    ) -> CommandAccepted:
        """Begins to remove a NodePool; `wait_until_gone` tells when it is done."""
        return await self.send(
            DeleteNodePool(**self._of(pool), resource_version=version, dry_run=dry_run)
        )

    async def preempt(self, pool: str, node: str) -> CommandAccepted:
        """Begins the seven minutes in which a spot Node is taken back."""
        return await self.send(PreemptNode(**self._of(pool), node=node))

    async def set_quota(self, zone: str, instance_type: str, limit: int) -> CommandAccepted:
        """Sets how many Nodes of a type the organisation may hold in a zone."""
        return await self.send(
            SetQuota(org=self.org, zone=zone, instance_type=instance_type, limit=limit)
        )

    async def register_cluster(self, name: str, zone: str) -> CommandAccepted:
        """Makes a cluster of the organisation known; it lies in that zone for ever."""
        return await self.send(RegisterCluster(org=self.org, cluster=name, zone=zone))

    async def add_machines(
        self,
        zone: str,
        instance_type: str,
        count: int,
        *,
        boot_seconds: float = 0,
        labels: Mapping[str, str] | None = None,
    ) -> CommandAccepted:
        """Puts at most 500 simulated machines into a zone."""
        return await self.send(
            AddMachines(
                zone=zone,
                instance_type=instance_type,
                count=count,
                labels=dict(labels or {}),
                boot_seconds=boot_seconds,
            )
        )

    async def break_machine(
        self, zone: str, machine: str, fault: Fault, *, times: int = 1, cause: str = ""
    ) -> CommandAccepted:
        """Makes a simulated machine fail the next `times` times that it boots."""
        return await self.send(
            BreakMachine(zone=zone, machine=machine, fault=fault, times=times, cause=cause)
        )

    async def repair_machine(self, zone: str, machine: str) -> CommandAccepted:
        """Returns a machine from triage to the free ones."""
        return await self.send(RepairMachine(zone=zone, machine=machine))

    async def run_pod(self, zone: str, machine: str, pod: Pod) -> CommandAccepted:
        """Starts a Pod on a simulated Node."""
        return await self.send(RunPod(zone=zone, machine=machine, pod=pod))

    async def stop_pod(self, zone: str, machine: str, name: str) -> CommandAccepted:
        """Ends a Pod on a simulated Node."""
        return await self.send(StopPod(zone=zone, machine=machine, name=name))

    def addressed(self, wish: ApplyNodePool | Manifest) -> ApplyNodePool:
        """The manifest as a command for this client's organisation and cluster."""
        command = wish.command if isinstance(wish, Manifest) else wish
        return command.model_copy(update=self._of(command.metadata.name))

    async def send(self, command: Command) -> CommandAccepted:
        """Sends any command and returns its acceptance."""
        (outcome,) = await self.send_many([command])
        if isinstance(outcome, CommandAccepted):
            return outcome
        raise outcome

    async def send_many(
        self, commands: Sequence[Command], *, window: int = WINDOW
    ) -> list[Outcome]:
        """Sends commands, `window` at a time; the outcome of each, refusals among them."""
        async with aclosing(self.send_each(commands, window=window)) as answers:
            return [outcome async for _, outcome in answers]

    async def send_each(
        self, commands: Sequence[Command], *, window: int = WINDOW
    ) -> AsyncGenerator[tuple[Command, Outcome], None]:
        """As `send_many`, giving each command with its outcome as soon as it is known, in order."""
        fit = [command for command in commands if misnamed(command) is None]
        async with self._outcomes(fit) as outcomes:
            under_way: deque[tuple[Command, asyncio.Task[Outcome]]] = deque()
            try:
                for command in commands:
                    task = asyncio.create_task(self._ask(command, outcomes))
                    under_way.append((command, task))
                    if len(under_way) >= window:
                        asked, first = under_way.popleft()
                        yield asked, await first
                while under_way:
                    asked, first = under_way.popleft()
                    yield asked, await first
            finally:
                for _, task in under_way:
                    task.cancel()

    async def _ask(self, command: Command, outcomes: Outcomes) -> Outcome:
        refusal = misnamed(command)
        if refusal is not None:
            return refusal
        id = str(uuid4())
        name = type(command).__name__
        envelope = envelope_of(type(command)).model_construct(
            id=id,
            type=name,
            source=self._source,
            subject="/".join(command.path),
            time=datetime.now(UTC),
            data=command,
        )
        outcome = outcomes.expect(id)
        position = 0
        try:
            async with asyncio.timeout(self.timeout_s):
                position = await self._publish(subject_of(command, ""), envelope.encode(), id)
                return await outcome
        except errors.ServerRefusal as refusal:
            return NoOutcome(f"{name} is not stored: {refusal}")
        except TimeoutError:
            return unanswered(name, self.timeout_s, stored=position > 0)
        finally:
            outcomes.forget(id)

    async def _publish(self, subject: str, content: bytes, id: str) -> int:
        """The position; an uncertain publish is said again under its id until the time is up."""
        while True:
            try:
                return await api.publish(self._bus, subject, content, id=id, timeout_s=2.0)
            except errors.InDoubt:
                await asyncio.sleep(RETRY_S)

    @asynccontextmanager
    async def _outcomes(self, commands: Sequence[Command]) -> AsyncIterator[Outcomes]:
        filters = outcome_filters(commands)
        async with self._reader(STREAM, filters, at_end=True) as reader:
            outcomes = Outcomes(reader)
            listening = asyncio.create_task(outcomes.listen())
            try:
                yield outcomes
            finally:
                listening.cancel()

    # The read model.

    async def get(self, bucket: Bucket, key: str) -> Document | None:
        """The object of that name; None where there is none.

        `key` is a name within this organisation and cluster; a quota's is `<zone>.<type>`, as is a
        capacity's.
        """
        with self._speaking():
            entry = await api.last_message(
                self._bus, f"KV_{bucket}", self._scope(bucket) + checked("name", key)
            )
        return _document(entry) if entry is not None else None

    async def list(self, bucket: Bucket, prefix: str = "") -> list[Row]:
        """Every object of a bucket whose name begins with `prefix`, ordered by name."""
        rows: dict[str, Row] = {}
        async with aclosing(self.watch(bucket, prefix)) as found:
            async for row in found:
                if isinstance(row, Listed):
                    break
                rows[row.key] = row
        return [row for _, row in sorted(rows.items()) if row.document is not None]

    async def watch(self, bucket: Bucket, prefix: str = "") -> AsyncGenerator[Row | Listed, None]:
        """Every object of a bucket, then `Listed`, then each change for ever.

        An object that is gone is a row without one. Changes that follow each other closely may
        come as the last of them.
        """
        scope = self._scope(bucket)
        listed = False
        async with self._reader(f"KV_{bucket}", [f"{scope}>"], newest=True) as reader:
            while True:
                if not listed and reader.pending == 0:
                    listed = True
                    yield Listed()
                for entry in await self._next(reader, endless=listed):
                    key = entry.subject[len(scope) :]
                    if key.startswith(prefix):
                        yield Row(key, _document(entry), entry.position)

    async def zone(self) -> str | None:
        """The zone in which the cluster lies; None for a cluster that is not registered."""
        entry = await self._last_said(ClusterRegistered, NOBODY)
        if entry is None:
            return None
        envelope = decode(ClusterRegistered, entry.subject, entry.content, {}, entry.position)
        return envelope.data.zone if isinstance(envelope, Envelope) else None

    async def wait(
        self,
        pool: str,
        condition: str,
        status: ConditionStatus = "True",
        *,
        timeout_s: float | None = None,
    ) -> Document:
        """The NodePool once the condition has that status for its newest generation.

        Raises `NotFound` where there is none or it goes, `TimedOut` after `timeout_s` seconds.
        """
        try:
            async with asyncio.timeout(timeout_s), aclosing(self._changes(pool)) as changes:
                async for _, found in changes:
                    if found is None:
                        raise NotFound(f'nodepool "{pool}" not found in {self.org}/{self.cluster}')
                    if _meets(found, condition, status):
                        return found
        except TimeoutError:
            pass
        raise TimedOut(f"timed out waiting for {condition}={status} on nodepool/{pool}")

    async def wait_until_gone(self, *pools: str, timeout_s: float | None = None) -> None:
        """Returns once none of the NodePools is left; raises `TimedOut` after so many seconds."""
        left = set(pools)
        try:
            async with asyncio.timeout(timeout_s), aclosing(self._changes(*pools)) as changes:
                while left:
                    pool, found = await anext(changes)
                    if found is None:
                        left.discard(pool)
        except TimeoutError:
            of, more = min(left), len(left) - 1
            told = f"nodepool/{of}" + (f" and {more} more" if more else "")
            raise TimedOut(f"timed out waiting for {told} to be deleted") from None

    async def _changes(self, *pools: str) -> AsyncGenerator[tuple[str, Document | None], None]:
        """Each of the NodePools, and again after each change; None for one not there."""
        scope = self._scope("nodepools")
        asked = frozenset(checked("name", pool) for pool in pools)
        unseen = set(asked)
        filters = [scope + pool for pool in sorted(asked)]
        if len(filters) > FILTERS_MAX:
            filters = [f"{scope}>"]
        async with self._reader("KV_nodepools", filters, newest=True) as reader:
            while True:
                entries = await reader.next(SETTLE_S if unseen else None)
                for entry in entries:
                    pool = entry.subject[len(scope) :]
                    if pool in asked:
                        unseen.discard(pool)
                        yield pool, _document(entry)
                for pool in sorted(unseen) if not entries else ():
                    # Under load the read model may be behind; the log knows at once.
                    if not await self._is_logged(pool):
                        unseen.discard(pool)
                        yield pool, None

    async def _is_logged(self, pool: str) -> bool:
        """Whether the NodePool exists as the log has it, be it in the read model or not."""
        created = await self._last_said(NodePoolValidated, token(pool))
        deleted = await self._last_said(CWNodePoolDeleted, token(pool))
        return created is not None and (deleted is None or deleted.position < created.position)

    async def _last_said(self, kind: type[Event], pool: str) -> Entry | None:
        """The newest event of that kind about a NodePool, or about the cluster as a whole (`_`)."""
        subject = f"np.evt.{kind.speaker}.{self.org}.{self.cluster}.{pool}.{kind.__name__}"
        with self._speaking():
            return await api.last_message(self._bus, STREAM, subject)

    # Events.

    async def events(
        self,
        *,
        pool: str = "",
        node: str = "",
        since: datetime | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[ObjectEvent, None]:
        """What happened to the cluster's NodePools and Nodes, in order; with `follow`, for ever.

        `pool` and `node` narrow it to those that regard this object; `since` is where to begin.
        """
        start = 1 if since is None else await self._position_at(since)
        filters = self._event_filters(pool)
        async with self._reader(STREAM, filters, start=start) as reader:
            while follow or reader.pending:
                for entry in await self._next(reader, endless=follow):
                    for seen in object_events(entry):
                        if regards(seen, pool, node) and (since is None or seen.time >= since):
                            yield seen

    def _event_filters(self, pool: str) -> Sequence[str]:
        of = token(checked("name", pool)) if pool else "*"
        where = f"{self.org}.{self.cluster}.{of}"
        return [f"np.evt.{kind.speaker}.{where}.{name}" for name, kind in KINDS.items()]

    async def _position_at(self, moment: datetime) -> int:
        """A position such that nothing at or after that moment lies before it."""
        with self._speaking():
            high = await self._last_position(STREAM) + 1
            low = 1
            while low < high:
                middle = (low + high) // 2
                if (found := await self._time_of(middle)) is not None and found >= moment:
                    high = middle
                else:
                    low = middle + 1
        return low

    async def _time_of(self, position: int) -> datetime | None:
        """When the first message at or after a position was stored."""
        manager = self._bus.jsm()
        found = await manager.get_msg(STREAM, seq=position, subject=">", next=True)
        return found.time

    # What they share.

    @property
    def _bus(self) -> Connection:
        assert self._connection is not None, "use the client in `async with`"
        return self._connection

    def _of(self, pool: str) -> dict[str, str]:
        return {"org": self.org, "cluster": self.cluster, "pool": pool}

    def _scope(self, bucket: Bucket) -> str:
        match bucket:
            case "nodepools" | "nodes":
                return f"$KV.{bucket}.{self.org}.{self.cluster}."
            case "quotas":
                return f"$KV.{bucket}.{self.org}."
            case "capacity":
                return f"$KV.{bucket}."

    @asynccontextmanager
    async def _reader(
        self,
        stream: str,
        filters: Sequence[str],
        *,
        start: int = 1,
        newest: bool = False,
        at_end: bool = False,
    ) -> AsyncIterator[Reader]:
        with self._speaking():
            last = await self._last_position(stream)
            begin = last + 1 if at_end else start
            reader = Reader(self._bus, stream, filters, start=begin, newest=newest)
            async with asyncio.timeout(self.timeout_s):
                await reader.open()
        try:
            yield reader
        finally:
            await reader.close()

    async def _last_position(self, stream: str) -> int:
        """Asked before a reader is opened, which would wait in silence for a stream not there.

        A control plane that is just being started has its streams in a moment.
        """
        end = asyncio.get_running_loop().time() + self.timeout_s
        while True:
            try:
                return await api.last_position(self._bus, stream)
            except errors.ServerRefusal as refusal:
                left = end - asyncio.get_running_loop().time()
                if refusal.code != STREAM_NOT_FOUND or left <= 0:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _next(self, reader: Reader, *, endless: bool) -> Sequence[Entry]:
        """What is read next; `endless` waits for it, else it is known to be there."""
        found = await reader.next(None if endless else self.timeout_s)
        if not found and not endless:
            raise silent(self.url)
        return found

    def _speaking(self) -> Speaking:
        return Speaking(self.url)


def _wish(wish: ApplyNodePool | Document | str) -> ApplyNodePool:
    if isinstance(wish, ApplyNodePool):
        return wish
    try:
        if not isinstance(wish, str):
            return manifest(wish, "the manifest")
        found = manifests(wish, "the manifest")
    except ManifestError as error:
        raise Refused("", "Invalid", str(error)) from None
    if len(found) > 1:
        raise Refused("", "Invalid", f"holds {len(found)} manifests; give send_many their commands")
    return found[0].command


def _document(entry: Entry) -> Document | None:
    if not entry.content or entry.headers.get("KV-Operation") in ("DEL", "PURGE"):
        return None
    found: Document = json.loads(entry.content)
    return found


def _meets(found: Document, condition: str, status: str) -> bool:
    metadata, state = found.get("metadata"), found.get("status")
    conditions = state.get("conditions") if isinstance(state, Mapping) else None
    generation = metadata.get("generation") if isinstance(metadata, Mapping) else None
    for known in conditions or ():
        if str(known.get("type")).lower() == condition.lower():
            observed: bool = known.get("observedGeneration") == generation
            return observed and str(known.get("status")).lower() == status.lower()
    return False


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container's user may have no name.
        return "unknown"
