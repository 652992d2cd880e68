"""The words in which stories about NodePools are told: what is given, what is asked, what is said.

A story needs no bus: `WorldStage` tells it to every service in one thread over a log in memory,
where time passes when told to. `support.live` tells the same stories on a real one.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import NamedTuple, cast

from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.events import (
    CapacityChecked,
    CommandAccepted,
    CommandRefused,
    CWNodePoolNodesRemoved,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    CWNodePoolScaledUp,
    CWNodeRequestQueued,
    GrantAcknowledged,
    KubernetesEvent,
    MachineAdded,
    NodeActivityChanged,
    NodePoolValidated,
    NodeUpdated,
    QuotaChecked,
    QuotaReleased,
)
from nodepool.contract.keys import FLEET, UNNAMED, PoolPath
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope, Event, Message, OfPool
from nodepool.contract.services import SERVICES
from nodepool.contract.subjects import address_of, token
from nodepool.engine.world import World
from nodepool.service import AnyService, Rows

# The aggregator comes last: it only reads, and the simulation's seeds, each of which stands for one
# order of events, were chosen with the services in this order.
NAMES = tuple(sorted(SERVICES, key="aggregator".__eq__))
ORG, CLUSTER = "acme", "prod"
ZONE = "US-EAST-04A"
H100 = "gd-8xh100ib-i128"
A100 = "gd-8xa100-i128"
PREFER_IDLE = {"scaleDownStrategy": "PreferIdle"}
MACHINES_MAX = 500
"""How many machines one command adds."""

TELLING: Mapping[type[Message], tuple[str, ...]] = {
    NodePoolValidated: ("reason",),
    QuotaChecked: ("reason", "granted"),
    QuotaReleased: ("granted",),
    CapacityChecked: ("reason", "available"),
    GrantAcknowledged: ("granted",),
    CWNodePoolScaledUp: ("before", "after"),
    CWNodeRequestQueued: ("count",),
    CWNodePoolRemoveNodes: ("count",),
    CWNodePoolNodesRemoved: ("count", "remaining"),
    CWNodePoolScaledDown: ("before", "after"),
    NodeUpdated: ("node", "phase"),
    NodeActivityChanged: ("node", "active"),
}
"""What a line of a story shows of a message beside its name; of any other, its Node."""

_MACHINE = re.compile(r"\bg[0-9a-f]{6}\b")


def services(*names: str) -> tuple[AnyService, ...]:
    """The services of these names, all of them where none is given."""
    found: list[AnyService] = [import_module(f"{name}.decide").SERVICE for name in names or NAMES]
    return tuple(found)


class Counts(NamedTuple):
    """How many Nodes a NodePool wants, awaits and has."""

    target: int
    in_progress: int
    current: int


class Stage(ABC):
    """Tells a story to the whole house; each word waits until everything has come to rest.

    Machines go by the order in which they were added: the first is `n1`, whatever its name.
    """

    def __init__(self, services_: Sequence[AnyService] = ()) -> None:
        self.services = tuple(services_) or services()
        self.sent: dict[str, tuple[str, bytes]] = {}
        self._kinds = {
            name: kind for service in self.services for name, kind in service.outputs.items()
        }
        self._said: list[Envelope[Message]] = []
        self._read_to = 0
        self._heard = 0
        self._together = False
        self._counted = 0
        self._aliases: dict[str, str] = {}

    # What a stage has to know how to do.

    @abstractmethod
    def put(self, subject: str, content: bytes, id: str) -> None:
        """Puts bytes on the bus; a message id that the bus knows makes them a duplicate."""

    @abstractmethod
    def run_until_idle(self) -> None:
        """Lets everything happen that does not need time to pass."""

    @abstractmethod
    def entries(self) -> Sequence[Entry]:
        """The log as it lies there."""

    @abstractmethod
    def documents(self, bucket: str) -> Mapping[str, Mapping[str, object]]:
        """The objects of the read model, by key."""

    @abstractmethod
    def document(self, bucket: str, key: str) -> Mapping[str, object] | None:
        """One object of the read model; None where there is none."""

    @abstractmethod
    def replay_differs(self) -> list[str]:
        """The services that are another after reading the whole log again."""

    # What is given and what is asked.

    def publish(self, subject: str, content: bytes, id: str = "") -> None:
        """Puts bytes on the bus as anybody could."""
        self.put(subject, content, id)
        self._rest()

    def ask(self, name: str, path: PoolPath, content: Mapping[str, object], id: str = "") -> str:
        """Sends a command as any client would; its id."""
        id = id or f"c{len(self.sent) + 1}"
        subject = ".".join(("np.cmd", *map(token, path), name))
        envelope = {"specversion": "1.0", "id": id, "type": name, "source": "stage"}
        self.sent[id] = subject, json.dumps({**envelope, "data": content}).encode()
        self.publish(*self.sent[id], id)
        return id

    def repeat(self, id: str) -> None:
        """Sends a command once more, later than the bus remembers its id."""
        self.publish(*self.sent[id])

    def _given(self, name: str, path: PoolPath, content: Mapping[str, object]) -> None:
        told = self.outcomes(self.ask(name, path, content))
        assert told in ([], ["done"], ["created"], ["configured"]), f"{name}: {told}"

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is asked in here is on the bus before anybody outputs any of it."""
        self._together = True
        yield
        self._together = False
        self._rest()

    def _rest(self) -> None:
        if not self._together:
            self.run_until_idle()

    def given_cluster(self, cluster: str = CLUSTER, org: str = ORG, zone: str = ZONE) -> None:
        """Registers a cluster."""
        self._given("RegisterCluster", (org, cluster, UNNAMED), {"zone": zone})

    def given_machines(
        self,
        count: int,
        instance_type: str = H100,
        *,
        zone: str = ZONE,
        labels: Mapping[str, str] | None = None,
        boot_s: float = 0,
    ) -> None:
        """Puts free machines into a zone."""
        for added in range(0, count, MACHINES_MAX):
            content = {
                "instanceType": instance_type,
                "count": min(MACHINES_MAX, count - added),
                "labels": labels or {},
                "bootSeconds": boot_s,
            }
            self._given("AddMachines", (FLEET, zone, UNNAMED), content)

    def given_quota(
        self, limit: int, instance_type: str = H100, *, org: str = ORG, zone: str = ZONE
    ) -> None:
        """Sets a limit, for the first time or anew."""
        content = {"zone": zone, "instanceType": instance_type, "limit": limit}
        self._given("SetQuota", (org, UNNAMED, UNNAMED), content)

    def given_house(self, machines: int = 10, quota: int = 100, boot_s: float = 0) -> None:
        """A cluster, machines and a quota: what a plain story begins with."""
        self.given_cluster()
        self.given_machines(machines, boot_s=boot_s)
        self.given_quota(quota)

    def apply(
        self,
        pool: str,
        target: int = 0,
        instance_type: str = H100,
        *,
        metadata: Mapping[str, object] | None = None,
        id: str = "",
        **spec: object,
    ) -> str:
        """Applies a manifest; `spec` holds further fields as a manifest names them."""
        content = {
            "apiVersion": "compute.coreweave.com/v1alpha1",
            "kind": "NodePool",
            "metadata": {"name": pool_path(pool)[2], **(metadata or {})},
            "spec": {"instanceType": instance_type, "targetNodes": target, **spec},
        }
        return self.ask("ApplyNodePool", pool_path(pool), content, id)

    def scale(self, pool: str, target: int, id: str = "") -> str:
        """Changes a NodePool's target alone."""
        return self.ask("ScaleNodePool", pool_path(pool), {"targetNodes": target}, id)

    def delete(self, pool: str, id: str = "") -> str:
        """Deletes a NodePool."""
        return self.ask("DeleteNodePool", pool_path(pool), {}, id)

    def preempt(self, pool: str, node: str) -> str:
        """Gives a spot Node back."""
        content = {"node": self.machine(node)}
        return self.ask("PreemptNode", pool_path(pool), content)

    def run_pod(self, node: str, pod: str = "job", /, **more: object) -> None:
        """Starts a Pod on a Node; `more` holds further fields of a Pod."""
        path = (FLEET, ZONE, self.machine(node))
        self._given("RunPod", path, {"pod": {"name": pod, **more}})

    def stop_pod(self, node: str, pod: str = "job") -> None:
        """Ends a Pod, as finished work does."""
        self._given("StopPod", (FLEET, ZONE, self.machine(node)), {"name": pod})

    def break_machines(self, *nodes: str, fault: str, times: int = 1, cause: str = "") -> None:
        """Makes machines fail the next times that they boot."""
        for node in nodes:
            content = {"fault": fault, "times": times, "cause": cause}
            self._given("BreakMachine", (FLEET, ZONE, self.machine(node)), content)

    def repair(self, *nodes: str) -> None:
        """Returns machines from triage."""
        for node in nodes:
            self._given("RepairMachine", (FLEET, ZONE, self.machine(node)), {})

    # What is said and shown.

    def envelopes(self) -> Sequence[Envelope[Message]]:
        """Every event that was said so far, in the order of the log."""
        entries = self.entries()
        for entry in entries[self._read_to :]:
            address = address_of(entry.subject)
            kind = self._kinds.get(address.name) if address is not None else None
            if kind is not None and issubclass(kind, Event):
                read = decode(kind, entry.subject, entry.content, {}, entry.position)
                if not isinstance(read, Unreadable):
                    self._said.append(cast("Envelope[Message]", read))
        self._read_to = len(entries)
        return self._said

    def dead_letters(self) -> list[str]:
        """Who parked which message: `service: name of the message`."""
        return [
            dead_letter(entry.subject, entry.content)
            for entry in self.entries()
            if entry.subject.startswith("np.dead.")
        ]

    def listen(self) -> None:
        """Forgets what was said so far: stories begin here."""
        self._heard = len(self.envelopes())

    def heard(self, pool: str) -> list[Envelope[Message]]:
        """What was said about a NodePool since the stage began to listen, outcomes left out."""
        key = "/".join(pool_path(pool))
        return [
            envelope
            for envelope in self.envelopes()[self._heard :]
            if isinstance(envelope.data, OfPool)
            and envelope.data.key == key
            and not isinstance(envelope.data, CommandAccepted | CommandRefused)
        ]

    def story(self, pool: str) -> list[str]:
        """Everything said about a NodePool, verdicts and Node updates included."""
        return [self.line(envelope.data) for envelope in self.heard(pool)]

    def events(self, pool: str) -> list[str]:
        """The events of a NodePool and its Nodes that users see, as the seeds name them."""
        said = (envelope.data for envelope in self.heard(pool))
        return [self.line(message) for message in said if isinstance(message, KubernetesEvent)]

    def messages(self, pool: str, name: str) -> list[str]:
        """The sentences of the events of this name."""
        said = (envelope.data for envelope in self.heard(pool))
        return [
            self.told(message.message)
            for message in said
            if isinstance(message, KubernetesEvent) and type(message).__name__ == name
        ]

    def line(self, message: Message) -> str:
        """A message in a few words: its name and what tells it from others."""
        fields = TELLING.get(type(message), ("node",))
        shown = [str(getattr(message, field, "")) for field in fields]
        return self.told(" ".join((type(message).__name__, *filter(None, shown))))

    def outcomes(self, id: str) -> list[str]:
        """What became of a command: `created 1`, or the reason, the field and the sentence."""
        return [
            outcome(envelope.data)
            for envelope in self.envelopes()
            if isinstance(envelope.data, CommandAccepted | CommandRefused)
            and envelope.correlationid == id
        ]

    def shown(self, pool: str) -> Mapping[str, object] | None:
        """A NodePool as readers see it; None where there is none."""
        return self.document("nodepools", "/".join(pool_path(pool)))

    def conditions(self, pool: str) -> dict[str, str]:
        """A NodePool's conditions and their reasons, in the order shown."""
        return {found["type"]: found["reason"] for found in self._conditions(pool)}

    def condition(self, pool: str, kind: str) -> str:
        """A NodePool's condition in one line: status, reason and message."""
        found = next(found for found in self._conditions(pool) if found["type"] == kind)
        return self.told("{status} {reason}: {message}".format_map(found))

    def _conditions(self, pool: str) -> list[dict[str, str]]:
        found = self._status(pool).get("conditions", [])
        return cast("list[dict[str, str]]", found)

    def _status(self, pool: str) -> dict[str, object]:
        found = self.shown(pool) or {}
        return cast("dict[str, object]", found.get("status", {}))

    def counts(self, pool: str) -> Counts:
        """A NodePool's target, and its Nodes in progress and in the cluster."""
        document, status = self.shown(pool), self._status(pool)
        assert document is not None, f"there is no NodePool {pool}"
        target = cast("dict[str, int]", document["spec"])["targetNodes"]
        found = cast("dict[str, int]", status)
        return Counts(target, found["inProgress"], found["currentNodes"])

    def nodes(self, pool: str = "") -> list[str]:
        """The Nodes there are, or those of a NodePool, in the order of their machines."""
        label = "compute.coreweave.com/node-pool"
        found = [
            self.told(key.rpartition("/")[2])
            for key, document in self.documents("nodes").items()
            if not pool or metadata(document)["labels"][label] == pool_path(pool)[2]
        ]
        return sorted(found, key=lambda name: int(name[1:]))

    def node(self, node: str) -> Mapping[str, object]:
        """A Node as readers see it."""
        name = self.machine(node)
        return next(
            document
            for key, document in self.documents("nodes").items()
            if key.endswith(f"/{name}")
        )

    def node_conditions(self, node: str) -> dict[str, str]:
        """A Node's conditions: status and reason, by type."""
        status = cast("dict[str, list[dict[str, str]]]", self.node(node)["status"])
        return {
            found["type"]: f"{found['status']} {found['reason']}" for found in status["conditions"]
        }

    def machine(self, node: str) -> str:
        """The name of a machine; one that no stage gave a number stands for itself."""
        return {alias: name for name, alias in self._known().items()}.get(node, node)

    def machine_path(self, node: str) -> PoolPath:
        """Whom to ask about a machine of the first zone."""
        return FLEET, ZONE, self.machine(node)

    def told(self, text: str) -> str:
        """A text with machines by their number instead of their name."""
        known = self._known()
        return _MACHINE.sub(lambda found: known.get(found[0], found[0]), text)

    def _known(self) -> Mapping[str, str]:
        said = self.envelopes()
        for envelope in said[self._counted :]:
            if isinstance(envelope.data, MachineAdded):
                self._aliases[envelope.data.machine] = f"n{len(self._aliases) + 1}"
        self._counted = len(said)
        return self._aliases


def pool_path(pool: str) -> PoolPath:
    """`org/cluster/pool`, where the first two may be left out."""
    *before, name = pool.split("/")
    org, cluster = before or (ORG, CLUSTER)
    return org, cluster, name


def metadata(document: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """The metadata of an object."""
    return cast("dict[str, dict[str, str]]", document["metadata"])


def outcome(message: CommandAccepted | CommandRefused) -> str:
    """An outcome in one line."""
    if isinstance(message, CommandAccepted):
        generation = "" if message.generation is None else f" {message.generation}"
        return f"{message.result}{generation}"
    return f"{message.reason} {message.field}: {message.message}"


def dead_letter(subject: str, content: bytes) -> str:
    """A dead letter in one line: who parked it, and the name of the message."""
    service, parked = subject.rpartition(".")[2], json.loads(content)["subject"]
    return f"{service}: {parked.rpartition('.')[2]}"


class WorldStage(Stage):
    """A stage in memory: one thread, and a clock that stands still until told to go on."""

    def __init__(self, *services_: AnyService) -> None:
        super().__init__(services_)
        self.world = World(self.services)
        self.begun = self.world.log.clock

    def put(self, subject: str, content: bytes, id: str) -> None:
        self.world.publish(subject, content, id)

    def run_until_idle(self) -> None:
        self.world.run_until_idle()

    def entries(self) -> Sequence[Entry]:
        return self.world.log.entries

    def documents(self, bucket: str) -> Mapping[str, Mapping[str, object]]:
        rows, _ = self._rows()
        return {key: rows.render(row) for key, row in self.world.objects(bucket).items()}

    def document(self, bucket: str, key: str) -> Mapping[str, object] | None:
        rows, state = self._rows()
        row = rows.row(state, bucket, key)
        return None if row is None else rows.render(row)

    def _rows(self) -> tuple[Rows[object], object]:
        for service in self.services:
            if service.rows is not None:
                return service.rows, self.world.state(service.name)
        raise AssertionError("no service of this world keeps rows")

    def replay_differs(self) -> list[str]:
        return self.world.replay_differs()

    # What only a world can do.

    @contextmanager
    def asleep(self, *names: str) -> Iterator[None]:
        """These services read and say nothing in here, and catch up afterwards."""
        everybody = self.world.hosts
        self.world.hosts = [host for host in everybody if host.service.name not in names]
        yield
        self.world.hosts = everybody
        self.run_until_idle()

    def restart(self, name: str) -> None:
        """A service forgets everything and reads the log from its beginning."""
        hosts = self.world.hosts
        self.world.hosts = [
            self.world.host(host.service) if host.service.name == name else host for host in hosts
        ]
        self.run_until_idle()

    def pass_time(self, minutes: float = 0, seconds: float = 0) -> None:
        """Lets time pass; whoever asked to be woken is woken when the moment comes."""
        self.world.pass_time(timedelta(minutes=minutes, seconds=seconds))

    def listen(self) -> None:
        super().listen()
        self.begun = self.world.log.clock

    def timed(self, pool: str) -> list[str]:
        """The events of a NodePool, each with the minutes and seconds since listening began."""
        return [
            f"{self._elapsed(envelope)} {self.line(envelope.data)}"
            for envelope in self.heard(pool)
            if isinstance(envelope.data, KubernetesEvent)
        ]

    def _elapsed(self, envelope: Envelope[Message]) -> str:
        assert envelope.time is not None
        minutes, seconds = divmod(int((envelope.time - self.begun).total_seconds()), 60)
        return f"{minutes}:{seconds:02}"
