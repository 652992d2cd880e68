"""Scale-downs, preemptions and work on Nodes in any order: what must be true once all is quiet."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    DeletedForPreemption,
    NodePreempted,
    PreemptionInProgress,
    PreemptionPending,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import RemovalReason, ScaleDownStrategy
from support.world_harness import WorldHarness

MACHINES = 12
EXAMPLES = 20
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
"""Without the phase that explains a failure, which traces every line."""
STEPS = 200
Action = tuple[str, int]
SCALE_DOWN, ALWAYS = RemovalReason.SCALE_DOWN, ScaleDownStrategy.PREFER_IDLE
GOES = (RemovalReason.PREEMPTED, RemovalReason.POOL_DELETED)
WANTS = {kind.__name__: kind for kind in (NodePreempted, PreemptionPending)}
Wants = NodePreempted | PreemptionPending
"""A Node is preempted from here on, whatever is said of it."""

actions = st.lists(
    st.one_of(
        st.tuples(st.just("scale"), st.integers(0, 5)),
        st.tuples(st.sampled_from(("preempt", "run", "stop")), st.integers(1, 8)),
        st.tuples(st.just("wait"), st.sampled_from((10, 70, 130, 430))),
    ),
    max_size=12,
)


@dataclass
class Expected:
    """What the Nodes of a NodePool are to be, by the plainest computation; one action at a time.

    Every Pod ends as soon as it is asked to. So an idle Node leaves at once; an active one stays,
    until it is idle or its drain begins, two minutes after it was preempted.

    machine_name: gives the name of a Node, by which Nodes of one batch are ordered.
    pending: when each preempted Node is drained, in seconds.
    lost: how many Nodes left the NodePool.
    batches, batch: how many times Nodes were added, and at which of these times each Node was.
    """

    target: int
    machine_name: Callable[[str], str]
    now: int = 0
    made: int = 0
    nodes: list[str] = field(default_factory=list)
    active: set[str] = field(default_factory=set)
    pending: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    batches: int = 0
    batch: dict[str, int] = field(default_factory=dict)

    def act(self, what: str, value: int) -> None:
        """Carries out one action."""
        node = f"n{value}"
        match what:
            case "scale":
                self.target = value
            case "preempt" if node in self.nodes:
                self.pending.setdefault(node, self.now + 120)
            case "run" if node in self.nodes and node not in self.pending:
                self.active.add(node)
            case "stop":
                self.active.discard(node)
            case "wait":
                self._wait(self.now + value)
        self.fit()

    def _wait(self, until: int) -> None:
        for node, due in sorted(self.pending.items(), key=lambda item: item[1]):
            if due <= until:
                self.now = max(self.now, due)
                self._leaves(node)
                self.fit()
        self.now = until

    def fit(self) -> None:
        """Remove the newest idle Nodes that are too many, and add the Nodes that are missing.

        Nodes that were added together are equally new; the first by name leaves first.
        """
        surplus = len(self.nodes) - len(self.pending) - self.target
        idle = [node for node in self.nodes if node not in self.active | self.pending.keys()]
        for node in sorted(idle, key=lambda node: (-self.batch[node], self.machine_name(node))):
            if surplus > 0:
                surplus -= 1
                self._leaves(node)
        self.batches += 1
        while len(self.nodes) < self.target:
            self.made += 1
            self.batch[f"n{self.made}"] = self.batches
            self.nodes.append(f"n{self.made}")

    def _leaves(self, node: str) -> None:
        self.nodes.remove(node)
        self.active.discard(node)
        self.pending.pop(node, None)
        self.lost += 1


def given_a_spot_pool(boot_s: float = 0, lifecycle: str = "IdleOnly") -> WorldHarness:
    """A spot NodePool of three Nodes with this strategy, and some free machines."""
    world = WorldHarness()
    world.given_data_center(machines=MACHINES, boot_s=boot_s)
    strategy = {"scaleDownStrategy": lifecycle}
    world.apply("cheap", 3, computeClass="spot", lifecycle=strategy)
    world.pass_time(seconds=boot_s)
    world.start_recording()
    return world


def act(world: WorldHarness, what: str, value: int, pods: Sequence[str] = ("job",)) -> None:
    """Carries out one action; a command that is refused changes nothing."""
    if what == "scale":
        world.scale("cheap", value)
    elif what == "wait":
        world.pass_time(seconds=value)
    elif what == "preempt":
        world.preempt("cheap", f"n{value}")
    else:
        path = world.machine_path(f"n{value}")
        for pod in pods:
            content = {"pod": {"name": pod, "graceS": 0}} if what == "run" else {"name": pod}
            world.send("RunPod" if what == "run" else "StopPod", path, content)


@given(actions)
@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
def test_every_action_alone_costs_the_nodes_that_it_must_and_no_other(
    sequence: list[Action],
) -> None:
    world = given_a_spot_pool()
    expected = Expected(target=3, machine_name=world.machine_name)
    expected.fit()

    for what, value in sequence:
        act(world, what, value)
        expected.act(what, value)

    assert len(world.nodes("cheap")) == len(expected.nodes)
    assert Counter(line.split()[0] for line in world.messages("cheap"))["CWNodeDeleted"] == (
        expected.lost
    )
    assert world.replay_differs() == []


@given(st.integers(0, 2**32), st.booleans(), st.sampled_from((0, 1)))
@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
def test_services_that_lag_behind_come_to_the_same_end(
    seed: int, prefer_idle: bool, boot_s: int
) -> None:
    # given any actions, while each service reads on whenever chance will have it
    random = Random(seed)
    world = given_a_spot_pool(boot_s, "PreferIdle" if prefer_idle else "IdleOnly")
    target, wrong = 3, set[str]()
    with world.sent_together():
        for _ in range(STEPS):
            if random.random() < 0.3:
                what, value = an_action(random)
                act(world, what, value)
                target = value if what == "scale" else target
            host = random.choice(world.world.hosts)
            world.world.read(host, random.choice((1, 3, 50)))
            world.world.process(host)
            world.world.fire(host)
            wrong.update(misjudged(world))
    # and then time to end them
    for number in range(1, MACHINES + 1):
        act(world, "stop", number)
    world.pass_time(minutes=40)

    # then the NodePool has what it wants, and no Node that was to be preempted
    assert wrong == set()
    assert world.node_counts("cheap") == (target, 0, target)
    assert world.conditions("cheap")["AtTarget"] == "TargetMet"
    assert survivors(world) == []
    # and what was published of it adds up
    assert unpaired_warnings(world) == []
    assert removals_without_an_end(world) == []
    assert world.dead_letters() == []
    assert world.replay_differs() == []


def an_action(random: Random) -> Action:
    """A target, a preemption, or a Pod that begins or ends."""
    what = random.choice(("scale", "preempt", "preempt", "run", "run", "stop"))
    return what, random.randrange(6) if what == "scale" else random.randint(1, 4)


def misjudged(world: WorldHarness) -> list[str]:
    """What the allocator takes for otherwise than it has read and has decided on it."""
    host = next(host for host in world.world.hosts if host.service.name == "allocator")
    if host.replica.open:
        return []
    state = host.replica.state
    pool = next(iter(state.pools.values()), None)
    if pool is None:
        return []
    preempted = {
        (event.node, event.assignment)
        for event in messages_until(world, host.cursor)
        if isinstance(event, Wants)
    }
    wrong = [
        f"{node} is preempted and taken for {member.removal}"
        for node, member in pool.members
        if (node, member.assignment) in preempted and member.removal not in GOES
    ]
    staying = sum(member.removal is None for _, member in pool.members)
    spareable = [node for node, member in pool.members if member.removal is SCALE_DOWN]
    if staying < pool.target and spareable:
        wrong.append(f"{staying} stay of {pool.target}, and {spareable} are not spared")
    if staying > pool.target and pool.spec.lifecycle.scale_down_strategy is ALWAYS:
        wrong.append(f"{staying} stay, and {pool.target} are wanted")
    return wrong


def messages_until(world: WorldHarness, position: int) -> list[Message]:
    """The preemptions in the log up to this position."""
    return [
        decoded.data
        for entry in world.world.log.entries[:position]
        if (kind := WANTS.get(entry.subject.rpartition(".")[2])) is not None
        and not isinstance(
            decoded := decode(kind, entry.subject, entry.content, {}, entry.position), Unreadable
        )
    ]


def survivors(world: WorldHarness) -> list[str]:
    """The Nodes that are still in the stay in which they were preempted."""
    wanted: dict[int, str] = {}
    gone: set[int] = set()
    for envelope in world.envelopes():
        match envelope.data:
            case PreemptionPending(node=node, assignment=stay):
                wanted[stay] = node
            case NodePreempted(node=node, assignment=stay):
                wanted[stay] = node
            case CWNodeDeleted(assignment=stay):
                gone.add(stay)
    return [node for stay, node in wanted.items() if stay not in gone]


def unpaired_warnings(world: WorldHarness) -> list[str]:
    """Preemption events about a Node that was not said to be preempted, or was gone by then."""
    pending: set[str] = set()
    gone: set[int] = set()
    wrong: list[str] = []
    for envelope in world.envelopes():
        match envelope.data:
            case PreemptionPending(node=node):
                pending.add(node)
            case PreemptionInProgress(node=node, assignment=stay):
                if stay in gone or node not in pending:
                    wrong.append(f"in progress: {node}")
            case CWNodeDeleted(assignment=stay):
                gone.add(stay)
            case DeletedForPreemption(node=node):
                if node not in pending:
                    wrong.append(f"deleted: {node}")
                pending.discard(node)
    return wrong


def removals_without_an_end(world: WorldHarness) -> list[str]:
    """What is wrong with the totals of removals.

    A removal has no total, or two, or a total that counts too many.
    """
    wrong: list[str] = []
    begun, deleted = False, 0
    for envelope in world.envelopes():
        match envelope.data:
            case CWNodePoolRemoveNodes():
                if begun:
                    wrong.append("a removal begins before the last has ended")
                begun = True
            case CWNodeDeleted():
                deleted += 1
            case CWNodePoolNodesRemoved(count=count):
                if not begun or count > deleted:
                    wrong.append(f"removed {count} of {deleted}")
                begun, deleted = False, 0
            case CWNodePoolScaledDown(before=before, after=after):
                if begun or after >= before:
                    wrong.append(f"scaled down from {before} to {after}")
    return [*wrong, "the last removal has not ended"] if begun else wrong
