"""What must be true when the faults have stopped, and all services had time enough."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar, cast

from capacity.supply import shares
from nodepool.contract.model import ComputeClass, NodePhase
from nodepool.contract.moments import rfc3339
from nodepool.contract.subjects import address_of
from nodepool.engine.world import World
from support.audit import autoscaling, counts, silence
from support.audit.facts import NOBODY, RECLAIMED, TRIAGE, ZAP, Facts, Pool, Violation
from support.audit.nodes import CORDON_REASON
from support.audit.racks import missing_in, racks_of
from support.audit.silence import HALF
from support.documents import POOL_LABEL, ZONE_LABEL, Capacity, Node, NodePool, Quota, documents_of
from support.reference.comparison import differences
from support.reference.history import History
from support.simulation.sender import SentCommand

if TYPE_CHECKING:
    from capacity.state import State as CapacityState
    from fleet.state import State as FleetState
    from lifecycle.state import State as LifecycleState
    from nodepool.placement.claims import Claimant
    from nodepool.placement.placement import Placement

    AnyPlacement = Placement[Claimant]

K = TypeVar("K", bound=Hashable)
UNCOUNTED = (NodePhase.BOOTING, NodePhase.REBOOTING, NodePhase.VERIFYING)
"""The phases whose own deadlines end a silence."""
DIFFERENCES_MAX = 20
"""How many differences from the reference model one violation names, each in a line."""


@dataclass
class FinalChecks:
    """Compares the facts of the log with the read model of a world, and with a replay."""

    world: World
    facts: Facts
    history: History

    def check(self, sent: Sequence[SentCommand]) -> None:
        """Raises `Violation` for the first check that fails."""
        self._commands_have_outcomes(sent)
        self._no_machine_is_booting()
        counts.check_objects(self.world)
        self._node_pools_add_up()
        self._nodes_add_up()
        self._machines_add_up()
        self._quotas_add_up()
        self._pods_have_nodes()
        self._racks_are_cordoned()
        self._silences_are_shown()
        self._deadlines_are_shown()
        self._all_is_as_computed()
        self._no_silence_is_overlooked()
        self._queue_is_one()
        self._places_are_current()
        self._replay_is_the_same()

    def _commands_have_outcomes(self, sent: Sequence[SentCommand]) -> None:
        for subject, _, id in sent:
            address = address_of(subject)
            assert address is not None
            if ("/".join(address.path), address.name, id) not in self.facts.outcomes:
                raise Violation(f"the command {id} on {subject} has no outcome")

    def _no_machine_is_booting(self) -> None:
        for stay in self.facts.stays.values():
            if stay.phase == NodePhase.BOOTING:
                raise Violation(f"{stay.machine} neither joined {stay.pool.key} nor was given up")

    def _node_pools(self) -> Mapping[str, NodePool]:
        return cast("Mapping[str, NodePool]", documents_of(self.world, "nodepools"))

    def _nodes(self) -> Mapping[str, Node]:
        # Documents are JSON; which form those of a bucket have is known from its name.
        return cast("Mapping[str, Node]", documents_of(self.world, "nodes"))

    def _node_pools_add_up(self) -> None:
        shown = {
            key: (
                node_pool["status"]["inProgress"],
                node_pool["status"]["currentNodes"],
                node_pool["status"].get("queuedNodes", 0),
            )
            for key, node_pool in self._node_pools().items()
        }
        _compare("NodePools", shown, {p.key: self._counts(p) for p in self.facts.existing_pools()})

    def _counts(self, pool: Pool) -> tuple[int, int, int]:
        """Return how many Nodes of a NodePool boot, have joined, and have no machine yet."""
        stays = [stay for stay in self.facts.stays_in(pool) if not stay.is_lent]
        is_booting = [stay.phase == NodePhase.BOOTING for stay in stays]
        queued = 0 if pool.deleting_since is not None else pool.reserved - len(is_booting)
        return sum(is_booting), len(is_booting) - sum(is_booting), queued

    def _nodes_add_up(self) -> None:
        nodes = self._nodes()
        shown = {_machine_of(node): (_pool_of(key, node), node) for key, node in nodes.items()}
        counted = {
            stay.machine: (stay.pool.key, stay.phase.value)
            for stay in self.facts.stays.values()
            if stay.phase != NodePhase.DELETED
        }
        phases = {
            machine: (pool, node["status"]["phase"]) for machine, (pool, node) in shown.items()
        }
        _compare("Nodes", phases, counted)

    def _machines_add_up(self) -> None:
        capacity = cast("Mapping[str, Capacity]", documents_of(self.world, "capacity"))
        shown = {
            key: (
                *(count["free"], count["assigned"], count["triage"], count["reclaimed"]),
                count.get("zap", 0),
            )
            for key, count in capacity.items()
        }
        offerings = {machine.offering for machine in self.facts.machines.values()}
        counted = {
            "/".join(offering): (
                sum(not holder for holder in holders),
                sum(holder not in NOBODY for holder in holders),
                holders.count(TRIAGE),
                holders.count(RECLAIMED),
                holders.count(ZAP),
            )
            for offering in offerings
            for holders in (self._holders(offering),)
        }
        _compare("machines", shown, counted)
        self._reclaims_are_carried_out(capacity)

    def _reclaims_are_carried_out(self, capacity: Mapping[str, Capacity]) -> None:
        """Machines are held back as many as were asked for, unless there are no more to take."""
        for key, count in capacity.items():
            zone, _, kind = key.partition("/")
            asked = self.facts.to_reclaim.get((zone, kind), 0)
            spot = [
                stay.machine
                for stay in self.facts.stays.values()
                if "/".join(stay.pool.offering) == key
                and stay.phase != NodePhase.DELETED
                and not stay.is_lent
                and stay.pool.spec.compute_class is ComputeClass.SPOT
            ]
            if count["toReclaim"] != asked or count["reclaimed"] > asked:
                raise Violation(f"{count} of {key} are reclaimed, and {asked} are asked for")
            if count["reclaimed"] < asked and (count["free"] or spot):
                raise Violation(f"{count} of {key} are reclaimed, though {spot} could be")

    def _holders(self, offering: tuple[str, str]) -> list[str]:
        machines = self.facts.machines.values()
        return [machine.holder for machine in machines if machine.offering == offering]

    def _queue_is_one(self) -> None:
        """Capacity, which shows who is served first, and the allocator, which serves, agree."""
        shown, served = (
            {
                key: waiting.runs
                for ranking in cast("AnyPlacement", self.world.state(name)).waiting.values()
                for key, waiting in ranking.waiting.items()
            }
            for name in ("capacity", "allocator")
        )
        _compare("waits", shown, served)

    def _places_are_current(self) -> None:
        """The last verdict on each NodePool that waits names its position of now."""
        state = cast("CapacityState", self.world.state("capacity"))
        said = {
            pool.key: (pool.said.position, pool.said.needed)
            for pool in state.pools.values()
            if pool.claim and pool.said is not None
        }
        found = {
            share.key: (share.position, share.needed)
            for offering in state.waiting
            for share in shares(state, offering, {})
            if share.key in said
        }
        _compare("positions", said, found)

    def _quotas_add_up(self) -> None:
        quotas = cast("Mapping[str, Quota]", documents_of(self.world, "quotas"))
        shown = {
            key: (quota["limit"], quota["used"])
            for key, quota in quotas.items()
            if quota["used"] or quota["limit"] is not None
        }
        reserving = {pool.ledger for pool in self.facts.existing_pools() if pool.reserved}
        counted = {
            "/".join(ledger): (self.facts.limits.get(ledger), self.facts.reserved(ledger))
            for ledger in reserving | set(self.facts.limits)
        }
        _compare("quotas", shown, counted)

    def _pods_have_nodes(self) -> None:
        for fault in autoscaling.faults(self.facts):
            raise Violation(fault)

    def _racks_are_cordoned(self) -> None:
        """The Nodes of a rack are cordoned where more than two machines of it were lost."""
        nodes = self._nodes()
        causes = {
            _machine_of(node): node["metadata"]["annotations"].get(CORDON_REASON, "").split(",")
            for node in nodes.values()
        }
        for (uid, domain), keys in racks_of(self.facts).items():
            missing, lost = missing_in(self.facts, keys[0])
            of_rack = [
                ["RackUnavailable" in cause for cause in causes.get(key, [])] for key in keys
            ]
            down = sum(map(any, of_rack))
            # A Node that is cordoned for a cause of its own is not available either.
            missing += sum(
                bool(causes[key][0]) and not all(each)
                for key, each in zip(keys, of_rack, strict=True)
            )
            closed = sum(bool(causes[key][0]) for key in keys)
            if (lost > 2 and closed < len(keys)) or (down and missing <= 2):
                text = f"{down} of {len(keys)} Nodes of {uid} in {domain} are cordoned"
                raise Violation(f"{text}, while {lost} of {missing} missing were lost")

    def _silences_are_shown(self) -> None:
        """Each machine that sends no heartbeat is a Node with Ready=Unknown, and is cordoned.

        It is not cordoned for that while most of its zone or of its cluster is silent.
        """
        shown = self._nodes()
        nodes = {_machine_of(node): node for node in shown.values()}
        hanging, end = silent_machines(self.world), self.world.log.entries[-1].position
        for stay in self.facts.stays.values():
            node = nodes.get(stay.machine)
            if stay.phase in (*UNCOUNTED, NodePhase.DELETED) or node is None:
                continue
            is_silent = _ready(node) == "Unknown"
            if stay.machine in hanging and not is_silent:
                raise Violation(f"{stay.machine} is silent, and is shown as {_ready(node)}")
            reason = node["metadata"]["annotations"].get(CORDON_REASON, "")
            is_cordoned, areas = "NotReady" in reason.split(","), silence.areas_of(stay)
            excused = [area for area in areas if silence.is_silent(self.facts, area, end)]
            if is_cordoned and (excused or not is_silent):
                raise Violation(f"{stay.machine} is NotReady; silent: {is_silent}, {excused}")
            half = [area for area in areas if silence.is_silent(self.facts, area, end, HALF)]
            if is_silent and not is_cordoned and not half:
                raise Violation(f"{stay.machine} is silent, and is not cordoned for that")

    def _no_silence_is_overlooked(self) -> None:
        """No step is due for a silent Node that is not cordoned: its silence is widespread."""
        shown = self._nodes()
        for node in shown.values():
            reason = node["metadata"]["annotations"].get(CORDON_REASON, "")
            is_counted = node["status"]["phase"] not in UNCOUNTED and _ready(node) == "Unknown"
            due = node["status"].get("silenceDue")
            if is_counted and due and "NotReady" not in reason.split(","):
                text = "although most of its zone or of its cluster is silent"
                raise Violation(f"{_machine_of(node)} shows that a step is due at {due}, {text}")

    def _deadlines_are_shown(self) -> None:
        """Each Node shows until when its machine has to answer, as long as it has to."""
        if all(service.name != "lifecycle" for service in self.world.services):
            return  # A replay without the service is checked too.
        nodes = self._nodes()
        shown = {
            _machine_of(node): node["status"].get("answerBy", "never") for node in nodes.values()
        }
        tables = cast("LifecycleState", self.world.state("lifecycle")).nodes
        moments = {str(key): node.answer.by for key, node in tables.items()}
        counted = {key: "never" if by is None else rfc3339(by) for key, by in moments.items()}
        _compare("deadlines of answers", shown, counted)

    def _all_is_as_computed(self) -> None:
        texts = list(islice(differences(self.world, self.history, self.facts), DIFFERENCES_MAX))
        if texts:
            raise Violation("\n".join(texts))

    def _replay_is_the_same(self) -> None:
        for host in self.world.hosts:
            self.world.process(host, even_if_quiet=True)
        for host in self.world.hosts:
            self.world.read(host)
        for service in self.world.services:
            replay = self.world.host(service)
            self.world.read(replay)
            for host in self.world.hosts:
                if host.service is service and host.replica.safe != replay.replica.safe:
                    raise Violation(f"a replay of {service.name} leads to another state")


def silent_machines(world: World) -> frozenset[str]:
    """The machines that send no heartbeat, as the simulated data centre knows."""
    (fleet, *_) = [host.replica for host in world.hosts if host.service.name == "fleet"]
    machines = cast("FleetState", fleet.safe.state).machines
    return frozenset(key for key, each in machines.items() if each.joined and each.is_silent)


def _ready(node: Node) -> str:
    """The status of the condition Ready; empty where it was never reported."""
    conditions = node["status"]["conditions"]
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")


def _machine_of(node: Node) -> str:
    metadata = node["metadata"]
    return f"{metadata['labels'][ZONE_LABEL]}/{metadata['name']}"


def _pool_of(key: str, node: Node) -> str:
    cluster = key.rpartition("/")[0]
    return f"{cluster}/{node['metadata']['labels'][POOL_LABEL]}"


def _compare(name: str, shown: Mapping[K, object], counted: Mapping[K, object]) -> None:
    differences = {
        key: (shown.get(key), counted.get(key))
        for key in {**shown, **counted}
        if shown.get(key) != counted.get(key)
    }
    if differences:
        raise Violation(f"the {name} do not add up, shown and counted: {differences}")
