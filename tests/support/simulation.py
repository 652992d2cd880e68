"""A seeded simulation: crashes, stale replicas, doubles, delays, noise, failing machines.

Every step is one small thing that one replica or somebody outside does: read a few entries, propose
outputs, store them, learn what became of them, crash between any two of these. After each step an
auditor reads what is new in the log. In the end the faults stop, and what is left has to add up.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from nodepool.contract.keys import FLEET, UNNAMED, PoolPath
from nodepool.contract.subjects import subject_of
from nodepool.engine.replica import CLOCK, Proposal, Replica, wake
from nodepool.engine.snapshot import dump, load
from nodepool.engine.world import Host, Log, World
from nodepool.service import AnyService
from support.auditor import TRIAGE, AuditError, Auditor, Pool, Stay, fits
from support.stage import A100, H100, ZONE, services

STEPS = 7_000
WEST = "US-WEST-04A"
CLUSTERS: Mapping[tuple[str, str], str] = {
    ("acme", "prod"): ZONE,
    ("acme", "lab"): ZONE,
    ("acme", "west"): WEST,
    ("umbrella", "prod"): ZONE,
}
RACK = "node.coreweave.cloud/rack"
CALM = timedelta(hours=4)
LAGGARD = (0.05, 0.2, 0.8)
"""How often a service's second replica acts, where its first acts once."""
PAUSES = (5, 20, 60)
"""How many turns a service may miss, hearing and saying nothing."""
NOISE = (b"noise", b"{}", b"[1]", b'{"data": {}}', b'{"specversion": "1.0", "data": {"x": 1}}')


@dataclass
class Actor:
    """One replica, and how far it has come with what it means to say.

    `pace` is how often it acts; `stored` is what the log made of its proposal, which it has not
    heard yet: a position, or 0 for a refusal.
    """

    host: Host
    pace: float
    proposal: Proposal[Any] | None = None
    stored: int | None = None

    @property
    def replica(self) -> Replica[Any]:
        return self.host.replica


@dataclass
class Snapshot:
    """A state that was written down, and where in the log it belongs."""

    lines: list[bytes]
    committed: int
    expected_sequence: int


@dataclass
class Simulation:
    """One simulation; the same seed always makes the same one."""

    seed: int
    services: Sequence[AnyService] = field(default_factory=services)
    steps: int = STEPS
    log: Log = field(default_factory=Log)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.world = World(self.services, replicas=2)
        self.world.log = self.log
        self.auditor = Auditor()
        self.audited = 0
        self.actors = [
            Actor(host, pace=self.random.choice(LAGGARD) if number % 2 else 1.0)
            for number, host in enumerate(self.world.hosts)
        ]
        self.paces = [actor.pace for actor in self.actors]
        self.sent: list[tuple[str, bytes, str]] = []
        self.later: deque[Callable[[], None]] = deque()
        self.pauses: dict[str, int] = {}
        self.snapshots: dict[str, list[Snapshot]] = {}

    def run(self) -> None:
        """Lets the simulation pass and checks what it leaves behind."""
        self._open_the_house()
        for _ in range(self.steps):
            self._step()
            self._audit()
        self._calm_down()
        self._settle_accounts()

    def last_words(self, most: int = 12) -> list[str]:
        """The end of the log as far as the auditor read it, one line for each entry."""
        return [
            f"{entry.position} {entry.time:%H:%M:%S} {entry.subject} {entry.content[:400]!r}"
            for entry in self.log.entries[: self.auditor.position][-most:]
        ]

    def _audit(self) -> None:
        for entry in self.log.entries[self.audited :]:
            self.auditor.read(entry)
        self.audited = len(self.log.entries)

    # Replicas.

    def _step(self) -> None:
        chance = self.random.random()
        if self.later and self.random.random() < 0.05:
            self.later.popleft()()
        elif chance < 0.025:
            self._customer()
        elif chance < 0.031:
            self._pass_time()
        elif chance < 0.034:
            self._noise()
        elif chance < 0.036:
            service = self.random.choice(self.services)
            self.pauses[service.name] = self.random.choice(PAUSES)
        else:
            (actor,) = self.random.choices(self.actors, self.paces)
            self._act_unless_paused(actor)

    def _act_unless_paused(self, actor: Actor) -> None:
        name = actor.host.service.name
        if self.pauses.get(name, 0):
            self.pauses[name] -= 1
        else:
            self._act(actor)

    def _act(self, actor: Actor) -> None:
        if self.random.random() < 0.006:
            self._crash(actor)
        elif actor.stored is not None:
            self._learn(actor)
        elif actor.proposal is not None:
            self._store(actor)
        elif self.random.random() < 0.3:
            self._ring(actor)
        elif actor.host.cursor < len(self.log.entries) and self.random.random() < 0.6:
            self.world.read(actor.host, self.random.choice((1, 2, 5, 20, 60)))
        else:
            self._propose(actor)

    def _propose(self, actor: Actor) -> None:
        proposal = actor.replica.propose(even_if_quiet=self.random.random() < 0.2)
        if proposal is not None and proposal.worth_storing:
            actor.proposal = proposal

    def _store(self, actor: Actor) -> None:
        assert actor.proposal is not None
        if self.random.random() < 0.05:  # It never arrives, and nobody says so.
            actor.proposal = None
            actor.replica.in_doubt()
        else:
            actor.stored = self.log.commit(actor.proposal) or 0

    def _learn(self, actor: Actor) -> None:
        assert actor.proposal is not None
        proposal, stored = actor.proposal, actor.stored
        actor.proposal = actor.stored = None
        if self.random.random() < 0.08:  # The output is lost on its way.
            actor.replica.in_doubt()
        elif stored:
            actor.replica.accepted(proposal, stored)
            if self.random.random() < 0.1:
                self._snapshot(actor)
        else:
            actor.replica.conflicted()

    def _snapshot(self, actor: Actor) -> None:
        replica = actor.replica
        taken = Snapshot(list(dump(replica.safe)), replica.committed, replica.expected_sequence)
        self.snapshots.setdefault(actor.host.service.name, []).append(taken)

    def _crash(self, actor: Actor) -> None:
        """The replica begins anew: at the log's beginning, or at some snapshot."""
        service = actor.host.service
        actor.proposal = actor.stored = None
        taken = self.snapshots.get(service.name)
        if taken and self.random.random() < 0.8:
            found = self.random.choice(taken[-3:])
            state = load(type(service.initial), found.lines)
            actor.host.replica = Replica(service, state, found.committed, found.expected_sequence)
            actor.host.cursor = found.committed
        else:
            actor.host.replica = Replica(service)
            actor.host.cursor = 0

    def _ring(self, actor: Actor) -> None:
        """Rings for a moment that has come; sometimes by a clock that is ahead of the log's."""
        replica, name = actor.replica, actor.host.service.name
        due = replica.due()
        if due is None or replica.open or replica.is_behind:
            return
        if due <= self.log.clock or self.random.random() < 0.1:
            rung = wake(name, due, replica.read_to)
            self.log.append(subject_of(rung.data, CLOCK), rung.encode(), rung.id)

    # The world outside.

    def _pass_time(self) -> None:
        """To a moment that somebody waits for, or any other."""
        due = [moment for actor in self.actors if (moment := actor.replica.due()) is not None]
        awaited = [moment for moment in due if moment > self.log.clock]
        if awaited and self.random.random() < 0.5:
            self.log.clock = min(awaited)
        else:
            seconds = self.random.choice((0.1, 1, 10, 45, 90, 121, 200, 600, 1900))
            self.log.clock += timedelta(seconds=seconds)

    def _noise(self) -> None:
        """What no service said, on subjects that services read."""
        service = self.random.choice(self.services)
        names = [*service.outputs, *service.inputs, "CWNodePainted"]
        pool = ".".join(self._path())
        subject = self.random.choice(
            (
                f"np.evt.{service.name}.{pool}.{self.random.choice(names)}",
                f"np.evt.{service.name}.ghosts.prod.ghost.{self.random.choice(names)}",
                f"np.evt.nobody.acme.prod.p0.{self.random.choice(names)}",
                f"np.evt.clock.{service.name}._._.Wake",
                f"np.dead.{service.name}",
            )
        )
        position = self.log.append(subject, self.random.choice(NOISE), "")
        self.auditor.noise.add(position)

    def _ask(self, name: str, path: PoolPath, content: object) -> None:
        """Publishes a command: in an envelope or bare, sometimes twice."""
        id = f"c{len(self.sent) + 1}"
        subject = ".".join(("np.cmd", *path, name))
        if self.random.random() < 0.8:
            envelope = {"specversion": "1.0", "id": id, "type": name, "source": "simulation"}
            content = {**envelope, "data": content}
        written = json.dumps(content).encode()
        self.sent.append((subject, written, id))
        self._publish(subject, written, id)
        again = self.random.random()
        if again < 0.05:
            self._publish(subject, written, id)
        elif again < 0.2:
            self.later.append(partial(self._publish, subject, written, id, forgotten=True))

    def _publish(self, subject: str, content: bytes, id: str, *, forgotten: bool = False) -> None:
        """Stores a command; once more where the bus has forgotten its id."""
        self.log.append(subject, content, "" if forgotten else id, {"Nats-Msg-Id": id})

    def _open_the_house(self) -> None:
        for (org, cluster), zone in CLUSTERS.items():
            self._ask("RegisterCluster", (org, cluster, UNNAMED), {"zone": zone})
        for org, zone, kind in self._ledgers()[:-1]:
            self._limit(org, zone, kind, self.random.choice((3, 6, 9)))
        for zone, kind, count in ((ZONE, H100, 9), (ZONE, A100, 3), (WEST, H100, 3)):
            self._machines(zone, kind, count)
        for _ in range(3):
            self._apply()

    def _ledgers(self) -> list[tuple[str, str, str]]:
        return [
            ("acme", ZONE, H100),
            ("umbrella", ZONE, H100),
            ("acme", WEST, H100),
            ("acme", ZONE, A100),
            ("umbrella", ZONE, A100),
        ]

    def _customer(self) -> None:
        deeds: Mapping[Callable[[], None], int] = {
            self._apply: 14,
            self._scale: 18,
            self._waver: 6,
            self._delete: 4,
            self._raise_or_lower: 5,
            self._add: 3,
            self._break: 5,
            self._repair: 5,
            self._run_pod: 22,
            self._stop_pod: 14,
            self._preempt: 14,
            self._repeat: 9,
            self._bad: 3,
        }
        (deed,) = self.random.choices(list(deeds), list(deeds.values()))
        deed()

    def _path(self) -> PoolPath:
        known = list(self.auditor.keys)
        if known and self.random.random() < 0.7:
            org, cluster, pool = self.random.choice(known).split("/")
            return org, cluster, pool
        org, cluster = self.random.choice(list(CLUSTERS))
        return org, cluster, f"p{self.random.randrange(3)}"

    def _apply(self) -> None:
        path = self._path()
        metadata: dict[str, object] = {"name": path[2]}
        if self.random.random() < 0.1:
            version = self.random.randrange(len(self.log.entries) + 1)
            metadata["resourceVersion"] = str(version)
        if self.random.random() < 0.2:
            metadata["labels"] = {"team": self.random.choice(("red", "blue"))}
        known = self.auditor.pool_at("/".join(path))
        spec = dict(known.spec) if known and self.random.random() < 0.6 else self._wish(path[2])
        for name, value in self._changes().items():
            if self.random.random() < 0.25:
                spec[name] = value
        self._ask("ApplyNodePool", path, {"metadata": metadata, "spec": spec})

    def _wish(self, name: str) -> dict[str, object]:
        """Pools of one name keep to one kind, so that most changes of them are allowed."""
        kinds: Mapping[str, dict[str, object]] = {
            "p0": {"instanceType": H100},
            "p1": {"instanceType": H100, "computeClass": "spot"},
            "p2": {"instanceType": self.random.choice((H100, A100))},
        }
        return {"targetNodes": self.random.choice((0, 1, 2, 3, 4, 8)), **kinds[name]}

    def _changes(self) -> dict[str, object]:
        strategy = self.random.choice(("IdleOnly", "PreferIdle"))
        racks = self.random.choice((["r1"], ["r1", "r2"]))
        expression = {"key": RACK, "operator": "In", "values": racks}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return {
            "targetNodes": self.random.choice((0, 1, 2, 3, 5, 8)),
            "lifecycle": {"scaleDownStrategy": strategy},
            "nodeLabels": {"team": self.random.choice(("red", "blue"))},
            "affinity": self.random.choice((None, None, required)),
            "region": self.random.choice((None, None, None, None, "US-EAST-01A")),
            "schedulingPriority": {"value": self.random.choice((-1, 0, 0, 7))},
        }

    def _scale(self) -> None:
        content: dict[str, object] = {"targetNodes": self.random.choice((0, 1, 2, 3, 4, 6, 9))}
        if self.random.random() < 0.1:
            content["resourceVersion"] = str(self.random.randrange(len(self.log.entries) + 1))
        self._ask("ScaleNodePool", self._path(), content)

    def _waver(self) -> None:
        """A pool shrinks, grows and shrinks again, bit by bit, while Pods come to its Nodes."""
        stay = self._node()
        if stay is None:
            return
        org, cluster, pool = stay.pool.key.split("/")
        held = stay.pool.held
        for target in (held - 1, held, held - 1, held, held - 1):
            content = {"targetNodes": max(0, target)}
            self.later.append(partial(self._ask, "ScaleNodePool", (org, cluster, pool), content))
            self.later.append(partial(self._visit, stay.pool))

    def _visit(self, pool: Pool) -> None:
        for stay in self.auditor.nodes_of(pool):
            if stay.phase != "assigned":
                self._start(stay) if self.random.random() < 0.5 else self._stop(stay)

    def _delete(self) -> None:
        self._ask("DeleteNodePool", self._path(), {})

    def _raise_or_lower(self) -> None:
        self._limit(*self.random.choice(self._ledgers()), self.random.choice((0, 1, 3, 6, 12)))

    def _limit(self, org: str, zone: str, kind: str, limit: int) -> None:
        content = {"zone": zone, "instanceType": kind, "limit": limit}
        self._ask("SetQuota", (org, UNNAMED, UNNAMED), content)

    def _add(self) -> None:
        zone, kind = self.random.choice(((ZONE, H100), (ZONE, A100), (WEST, H100)))
        self._machines(zone, kind, self.random.choice((1, 2)))

    def _machines(self, zone: str, kind: str, count: int) -> None:
        content = {
            "instanceType": kind,
            "count": count,
            "labels": {RACK: self.random.choice(("r1", "r2"))}
            if self.random.random() < 0.5
            else {},
            "bootSeconds": self.random.choice((0, 0, 30, 400)),
        }
        self._ask("AddMachines", (FLEET, zone, UNNAMED), content)

    def _machine(self) -> PoolPath | None:
        known = list(self.auditor.machines)
        if not known:
            return None
        zone, name = self.random.choice(known).split("/")
        return FLEET, zone, name

    def _node(self, *, spot: bool = False) -> Stay | None:
        found = [
            stay
            for stay in self.auditor.stays.values()
            if stay.phase == "production"
            and (not spot or stay.pool.spec.get("computeClass") == "spot")
        ]
        return self.random.choice(found) if found else None

    def _break(self) -> None:
        path = self._machine()
        if path is not None:
            fault = self.random.choice(("boot", "registration", "silence"))
            content = {"fault": fault, "times": self.random.choice((1, 1, 2))}
            self._ask("BreakMachine", path, content)

    def _repair(self) -> None:
        path = self._machine()
        if path is not None:
            self._ask("RepairMachine", path, {})

    def _run_pod(self) -> None:
        stay = self._node()
        if stay is not None:
            self._start(stay)

    def _start(self, stay: Stay) -> None:
        pod = {
            "name": f"job-{self.random.randrange(2)}",
            "interruption": self.random.choice(("blocking", "interruptable", "graceful")),
            "graceS": self.random.choice((0, 30, 300, 3600)),
            "daemonSet": self.random.random() < 0.1,
        }
        self._ask("RunPod", self._path_of(stay), {"pod": pod})

    def _stop_pod(self) -> None:
        working = [stay for stay in self.auditor.stays.values() if stay.working]
        if working:
            self._stop(self.random.choice(working))

    def _stop(self, stay: Stay) -> None:
        content = {"name": f"job-{self.random.randrange(2)}"}
        self._ask("StopPod", self._path_of(stay), content)

    def _path_of(self, stay: Stay) -> PoolPath:
        zone, name = stay.machine.split("/")
        return FLEET, zone, name

    def _preempt(self) -> None:
        stay = self._node(spot=self.random.random() < 0.9)
        if stay is not None:
            org, cluster, pool = stay.pool.key.split("/")
            content = {"node": stay.machine.rpartition("/")[2]}
            self._ask("PreemptNode", (org, cluster, pool), content)

    def _repeat(self) -> None:
        """A command once more: as the bus knows it, later than it remembers, or as a new one."""
        recent = self.random.random() < 0.6
        subject, content, id = self.random.choice(self.sent[-12:] if recent else self.sent)
        match self.random.randrange(3):
            case 0:
                self._publish(subject, content, id)
            case 1:
                self._publish(subject, content, id, forgotten=True)
            case 2:
                again = f"c{len(self.sent) + 1}"
                written = content.replace(f'"{id}"'.encode(), f'"{again}"'.encode())
                self.sent.append((subject, written, again))
                self._publish(subject, written, again)

    def _bad(self) -> None:
        """A command that cannot be taken: no JSON, unknown fields, beyond its subject."""
        path = self._path()
        name = self.random.choice(("ApplyNodePool", "ScaleNodePool", "DeleteNodePool"))
        content = self.random.choice(
            (
                b"noise",
                b"[]",
                b'{"targetNodes": "3", "spek": 1}',
                b'{"org": "umbrella", "cluster": "west", "targetNodes": 3}',
                b'{"specversion": "1.0", "id": 7, "data": null}',
            )
        )
        id = f"c{len(self.sent) + 1}"
        subject = ".".join(("np.cmd", *path, name))
        self.sent.append((subject, content, id))
        self._publish(subject, content, id)

    # Afterwards.

    def _calm_down(self) -> None:
        """No more faults: everybody catches up, and as much time passes as anything may take."""
        for actor in self.actors:
            if actor.proposal is not None:
                actor.replica.in_doubt()
        self.world.run_until_idle()
        self._audit()
        self.world.pass_time(CALM)
        self._audit()
        self._ask_the_troubled_again()

    def _ask_the_troubled_again(self) -> None:
        """A NodePool that could not be judged is judged anew when its wish changes."""
        for key, row in self._rows("nodepools"):
            reasons = [found.reason for found in row.conditions.values()]
            pool = self.auditor.pool_at(key)
            if pool is not None and "InternalError" in reasons:
                org, cluster, name = key.split("/")
                spec = {**pool.spec, "nodeLabels": {"asked": "again"}}
                content = {"metadata": {"name": name}, "spec": spec}
                self._ask("ApplyNodePool", (org, cluster, name), content)
        self.world.pass_time(CALM)
        self._audit()

    def _settle_accounts(self) -> None:
        self._every_command_ended()
        for stay in self.auditor.stays.values():
            if stay.phase == "assigned":
                raise AuditError(f"{stay.machine} neither joined {stay.pool.key} nor was given up")
        for pool in self.auditor.living():
            self._is_explained(pool)
        self._rows_add_up()
        self._replay_equals_live()

    def _every_command_ended(self) -> None:
        for subject, _, id in self.sent:
            *_, org, cluster, pool, name = subject.split(".")
            if ("/".join((org, cluster, pool)), name, id) not in self.auditor.outcomes:
                raise AuditError(f"the command {id} on {subject} has no outcome")

    def _is_explained(self, pool: Pool) -> None:
        """A NodePool is at its target, or its conditions say why not, and say it truly."""
        row = dict(self._rows("nodepools")).get(pool.key)
        if row is None:
            raise AuditError(f"{pool.key} is not shown")
        conditions = {kind: found.reason for kind, found in row.conditions.items()}
        told = f"{pool.key} wants {pool.spec['targetNodes']} and holds {pool.held}: {conditions}"
        if pool.deleting_since is not None:
            raise AuditError(f"it was to be deleted: {told}")
        if conditions["Validated"] == "Invalid":
            return
        _, grant = pool.grants[-1]
        if (grant["reason"] == "Under") is not (conditions["Quota"] == "Under"):
            raise AuditError(f"its Quota is {grant['reason']}: {told}")
        others = self._reserved_beside(pool)
        limit = self.auditor.limits.get(pool.ledger, -1)
        if (others + pool.spec["targetNodes"] <= limit) is not (conditions["Quota"] == "Under"):
            raise AuditError(f"others reserve {others} of {limit}: {told}")
        self._is_served(pool, grant["granted"], conditions, told)
        self._is_shrunk(pool, told)
        current = sum(stay.phase != "assigned" for stay in self.auditor.nodes_of(pool))
        target = pool.spec["targetNodes"]
        expected = ("TargetMet", "OverTarget", "UnderTarget")[
            (current > target) - (current < target)
        ]
        if conditions["AtTarget"] != expected:
            raise AuditError(f"it has {current} and says another thing: {told}")

    def _reserved_beside(self, pool: Pool) -> int:
        return sum(
            other.reserved
            for other in self.auditor.living()
            if other is not pool and other.ledger == pool.ledger
        )

    def _is_served(
        self, pool: Pool, granted: int, conditions: Mapping[str, str], told: str
    ) -> None:
        # While its quota is exceeded it asks for nothing, whatever it was granted before.
        short = pool.held < granted and conditions["Quota"] == "Under"
        if short is (conditions["Capacity"] == "Sufficient"):
            raise AuditError(f"its Capacity says another thing: {told}")
        free = [
            name
            for name, machine in self.auditor.machines.items()
            if not machine.holder
            and (machine.zone, machine.instance_type) == pool.offering
            and fits(pool.spec, machine)
        ]
        if short and free:
            raise AuditError(f"it waits while {free} are free: {told}")

    def _is_shrunk(self, pool: Pool, told: str) -> None:
        staying = [s for s in self.auditor.nodes_of(pool) if s.phase in ("assigned", "production")]
        strategy = pool.spec.get("lifecycle", {}).get("scaleDownStrategy", "IdleOnly")
        idle = [stay for stay in staying if not stay.working]
        if len(staying) > pool.spec["targetNodes"] and (idle or strategy == "PreferIdle"):
            raise AuditError(f"it keeps {len(staying)}, {len(idle)} of them idle: {told}")

    def _rows_add_up(self) -> None:
        books = self.auditor
        shown = {key: (row.in_progress, row.current) for key, row in self._rows("nodepools")}
        counted = {
            pool.key: (
                sum(stay.phase == "assigned" for stay in books.nodes_of(pool)),
                sum(stay.phase != "assigned" for stay in books.nodes_of(pool)),
            )
            for pool in books.living()
        }
        _same("NodePools", shown, counted)
        nodes = {
            (row.zone, row.name): (row.pool, row.phase.value) for _, row in self._rows("nodes")
        }
        stays = {
            tuple(stay.machine.split("/")): (
                stay.pool.key,
                "booting" if stay.phase == "assigned" else stay.phase,
            )
            for stay in books.stays.values()
            if stay.phase != "gone"
        }
        _same("Nodes", nodes, stays)
        capacity = {
            key: (row.free, row.assigned, row.triage) for key, row in self._rows("capacity")
        }
        machines: dict[str, tuple[int, int, int]] = {}
        for machine in books.machines.values():
            key = f"{machine.zone}/{machine.instance_type}"
            free, assigned, triage = machines.get(key, (0, 0, 0))
            held = machine.holder not in ("", TRIAGE)
            machines[key] = (
                free + (not machine.holder),
                assigned + held,
                triage + (machine.holder == TRIAGE),
            )
        _same("machines", capacity, machines)
        quotas = {
            key: (row.limit, row.used)
            for key, row in self._rows("quotas")
            if row.used or row.limit is not None
        }
        ledgers = {pool.ledger for pool in books.living() if pool.reserved} | set(books.limits)
        reserved = {
            "/".join(ledger): (
                books.limits.get(ledger),
                sum(pool.reserved for pool in books.living() if pool.ledger == ledger),
            )
            for ledger in ledgers
        }
        _same("quotas", quotas, reserved)

    def _rows(self, bucket: str) -> list[tuple[str, Any]]:
        return list(self.world.objects(bucket).items())

    def _replay_equals_live(self) -> None:
        for host in self.world.hosts:
            self.world.process(host, even_if_quiet=True)
        for host in self.world.hosts:
            self.world.read(host)
        for service in self.services:
            again = self.world.host(service)
            self.world.read(again)
            lines = list(dump(again.replica.safe))
            for host in self.world.hosts:
                if host.service is service and list(dump(host.replica.safe)) != lines:
                    raise AuditError(f"{service.name} is another after reading the log again")


def _same(what: str, shown: Mapping[Any, object], counted: Mapping[Any, object]) -> None:
    differ = {
        key: (shown.get(key), counted.get(key))
        for key in {**shown, **counted}
        if shown.get(key) != counted.get(key)
    }
    if differ:
        raise AuditError(f"the {what} do not add up, shown and counted: {differ}")
