"""Scale-downs, preemptions and work on Nodes in any order: what must be true once all is quiet."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

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
from support.constants import PREFER_IDLE
from support.world_harness import WorldHarness

MACHINES = 12
EXAMPLES = 40
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
"""Without the phase that explains a failure, which traces every line."""
LAGGARDS = ("allocator", "lifecycle", "preemption", "fleet")
Action = tuple[str, int]

actions = st.lists(
    st.one_of(
        st.tuples(st.just("scale"), st.integers(0, 5)),
        st.tuples(st.sampled_from(("preempt", "run", "stop")), st.integers(1, 8)),
        st.tuples(st.just("wait"), st.sampled_from((10, 70, 130, 430))),
    ),
    max_size=12,
)
interleavings = st.lists(st.tuples(actions, st.sets(st.sampled_from(LAGGARDS))), max_size=4)


@dataclass
class Expected:
    """What the Nodes of a NodePool are to be, by the plainest computation; one action at a time.

    Every Pod ends as soon as it is asked to. So an idle Node leaves at once; an active one stays,
    until it is idle or its drain begins, two minutes after it was preempted.

    pending: when each preempted Node is drained, in seconds.
    lost: how many Nodes left the NodePool.
    """

    target: int
    now: int = 0
    made: int = 0
    nodes: list[str] = field(default_factory=list)
    active: set[str] = field(default_factory=set)
    pending: dict[str, int] = field(default_factory=dict)
    lost: int = 0

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
        """Removes the newest idle Nodes that are too many, and adds those that are missing."""
        surplus = len(self.nodes) - len(self.pending) - self.target
        idle = [node for node in self.nodes if node not in self.active | self.pending.keys()]
        for node in reversed(idle):
            if surplus > 0:
                surplus -= 1
                self._leaves(node)
        while len(self.nodes) < self.target:
            self.made += 1
            self.nodes.append(f"n{self.made}")

    def _leaves(self, node: str) -> None:
        self.nodes.remove(node)
        self.active.discard(node)
        self.pending.pop(node, None)
        self.lost += 1


def given_a_spot_pool(count: int, **spec: object) -> WorldHarness:
    """A spot NodePool of so many Nodes, and some free machines."""
    world = WorldHarness()
    world.given_data_center(machines=MACHINES)
    world.apply("cheap", count, computeClass="spot", **spec)
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
    world, expected = given_a_spot_pool(3), Expected(target=3)
    expected.fit()

    for what, value in sequence:
        act(world, what, value)
        expected.act(what, value)

    assert len(world.nodes("cheap")) == len(expected.nodes)
    assert Counter(line.split()[0] for line in world.messages("cheap"))["CWNodeDeleted"] == (
        expected.lost
    )
    assert world.replay_differs() == []


@given(interleavings, st.booleans())
@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
def test_services_that_lag_behind_come_to_the_same_end(
    rounds: list[tuple[list[Action], set[str]]], prefer_idle: bool
) -> None:
    # given any actions, during which some services read nothing, and then time to end them
    world = given_a_spot_pool(3, **({"lifecycle": PREFER_IDLE} if prefer_idle else {}))
    target = 3
    for sequence, laggards in rounds:
        with world.paused(*laggards):
            for what, value in sequence:
                act(world, what, value)
                target = value if what == "scale" else target
    for number in range(1, MACHINES + 1):
        act(world, "stop", number)
    world.pass_time(minutes=40)

    # then the NodePool has what it wants, and no Node that was to be preempted
    assert world.node_counts("cheap") == (target, 0, target)
    assert world.conditions("cheap")["AtTarget"] == "TargetMet"
    assert survivors(world) == []
    # and what was said of it adds up
    assert unpaired_warnings(world) == []
    assert removals_without_an_end(world) == []
    assert world.dead_letters() == []
    assert world.replay_differs() == []


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
    """What is wrong with the counts of removals: one that was not begun, or counts too many."""
    wrong: list[str] = []
    begun, deleted = False, 0
    for envelope in world.envelopes():
        match envelope.data:
            case CWNodePoolRemoveNodes():
                begun = True
            case CWNodeDeleted():
                deleted += 1
            case CWNodePoolNodesRemoved(count=count):
                if not begun or not 0 < count <= deleted:
                    wrong.append(f"removed {count} of {deleted}")
                begun, deleted = False, 0
            case CWNodePoolScaledDown(before=before, after=after):
                begun = False
                if after >= before:
                    wrong.append(f"scaled down from {before} to {after}")
    return wrong
