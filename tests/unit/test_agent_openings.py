"""Which NodePool each Pod that waits counts for, and what is said of that."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.actions import Place, ReportWaiting
from agent.nodes.objects import WantedNode
from agent.pods.waiting import Demand, Requests
from agent.pools.objects import WantedPool
from agent.pools.openings import Opening, missing_reports, opening, shared_out
from nodepool.contract.affinity import NodeSelectorRequirement
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.events import PodsWaitingReported
from nodepool.contract.events.agent import SHAPES_MAX
from nodepool.contract.keys import CONTROL_PLANE
from nodepool.contract.model import RESERVED, NodePhase, NodePoolSpec, Taint, spec_document
from nodepool.contract.pods import NO_GPU, Shape, Toleration, WaitingPods
from support.constants import CLUSTER, H100, ORG, ZONE

CPU = "cd-gp-i64-erapids"
HERE = Place(ORG, CLUSTER, ZONE)
NODE = Shape(8, 0)
"""A Pod that fills a Node with eight GPUs."""


def pool(
    name: str = "train",
    nodes: Sequence[WantedNode] = (),
    *,
    deleting: bool = False,
    validated: str = "True",
    capacity: str = "False",
    **spec: object,
) -> Opening | None:
    """A NodePool that may have three Nodes, has none, and wants none, unless that is changed."""
    fields = {
        "instanceType": H100,
        "targetNodes": 0,
        "minNodes": 0,
        "maxNodes": 3,
        "autoscaling": True,
        **spec,
    }
    read = spec_document(NodePoolSpec.model_validate(fields))
    checks = {"Validated": validated, "Capacity": capacity, "Quota": "True"}
    status = {"conditions": [{"type": kind, "status": is_so} for kind, is_so in checks.items()]}
    wanted = WantedPool(name, f"uid-{name}", 4, "41", read, deleting=deleting, status=status)
    return opening(wanted, "", nodes, HERE)


def open_pool(name: str = "train", nodes: Sequence[WantedNode] = (), **spec: object) -> Opening:
    """The same; it is autoscaled."""
    found = pool(name, nodes, deleting=False, validated="True", capacity="False", **spec)
    assert found is not None
    return found


def node(
    phase: NodePhase = NodePhase.PRODUCTION,
    *,
    active: bool = False,
    cordoned: bool = False,
    reserved: str = ORG,
) -> WantedNode:
    """A Node on the bus."""
    condition = {"type": "CWActive", "status": "True" if active else "False"}
    return WantedNode(
        "g1",
        ZONE,
        "train",
        1,
        "41",
        phase,
        unschedulable=cordoned,
        labels={RESERVED: reserved},
        conditions=(condition,),
    )


def asks(
    gpus: int = 8,
    *tolerations: Toleration,
    cpu: str = "0",
    memory: str = "0",
    accelerators: int = 0,
    **labels: str,
) -> Demand:
    """What a Pod asks for; of labels, `_` stands for every other sign."""
    return Demand(
        Requests(gpus, accelerators, Decimal(cpu), Decimal(memory)),
        selector=tuple(labels.items()),
        tolerations=tolerations,
    )


# Which Pods a Node takes.


def test_a_node_has_the_labels_of_its_pool_its_machine_its_kubelet_and_the_control_plane() -> None:
    found = open_pool(nodeLabels={"team": "red", "topology.kubernetes.io/zone": "mine"})

    assert found.labels == {
        "team": "red",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": H100,
        "node.kubernetes.io/type": H100,
        "node.coreweave.cloud/class": "gpu",
        "node.coreweave.cloud/state": "production",
        "node.coreweave.cloud/reserved": ORG,
        "backend.coreweave.cloud/flavor": "infiniband",
        "topology.kubernetes.io/zone": ZONE,
        "topology.kubernetes.io/region": "US-EAST-04",
        "compute.coreweave.com/node-pool": "train",
        "compute.coreweave.com/node-pool-uid": "uid-train",
        "compute.coreweave.com/compute-class": "default",
    }


def test_the_uid_of_the_object_in_the_cluster_is_that_of_the_label() -> None:
    document = spec_document(
        NodePoolSpec.model_validate({"instanceType": H100, "targetNodes": 0, "autoscaling": True})
    )

    found = opening(WantedPool("train", "bus", 1, "41", document), "object", (), HERE)

    assert found is not None
    assert (found.uid, found.labels["compute.coreweave.com/node-pool-uid"]) == ("bus", "object")


def test_a_pod_is_taken_where_its_labels_are() -> None:
    found = open_pool(nodeLabels={"team": "red"})
    blue = ((NodeSelectorRequirement(key="team", operator="NotIn", values=("red",)),),)

    taken = [
        found.takes(asks(team="red")),
        found.takes(asks(team="blue")),
        found.takes(Demand(Requests(8), terms=blue)),
    ]

    assert taken == [True, False, False]


def test_a_pod_is_taken_whose_tolerations_cover_the_taints() -> None:
    taint = Taint(key="team", value="red", effect="NoExecute")
    found = open_pool(nodeTaints=[taint.model_dump()])

    assert found.takes(asks(8, Toleration(key="team", operator="Exists")))
    assert not found.takes(asks())


def test_a_node_of_cpus_takes_what_tolerates_it_and_asks_for_no_gpu() -> None:
    found = open_pool(instanceType=CPU)

    assert found.takes(asks(0, NO_GPU))
    assert not found.takes(asks(0))
    assert not found.takes(asks(1, NO_GPU))


@pytest.mark.parametrize(
    "fields",
    [{"gpus": 9}, {"accelerators": 9}, {"cpu": "128.1"}, {"memory": "3e12"}, {"cpu": "Infinity"}],
)
def test_a_pod_that_asks_for_more_than_a_machine_has_is_not_taken(
    fields: Mapping[str, object],
) -> None:
    assert not open_pool().takes(asks(**{"gpus": 0, **fields}))  # type: ignore[arg-type]


def test_cpu_and_memory_of_a_pod_are_counted_as_slots_of_its_node() -> None:
    found, memory = open_pool(), INSTANCE_TYPES[H100].memory_ki * 1024

    shapes = [
        found.shape(asks(8).requests),
        found.shape(asks(1, cpu="128").requests),
        found.shape(asks(0, cpu="43").requests),
        found.shape(asks(0, memory=str(memory // 4)).requests),
        found.shape(asks(0, cpu="0.1").requests),
    ]

    assert shapes == [(8, 0, 1), (1, 0, 110), (0, 0, 55), (0, 0, 27), (0, 0, 1)]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"autoscaling": False}, id="not autoscaled"),
        pytest.param({"instanceType": "gb200-4x"}, id="racks"),
        pytest.param({"instanceType": "none-such"}, id="unknown"),
        pytest.param({"deleting": True}, id="on its way out"),
        pytest.param({"validated": "False"}, id="invalid"),
    ],
)
def test_no_pod_counts_for_a_pool_that_cannot_grow(fields: Mapping[str, object]) -> None:
    assert pool(**fields) is None  # type: ignore[arg-type]


# How many Nodes are free.


@pytest.mark.parametrize(
    ("target", "nodes", "free"),
    [
        (0, (), 3),
        (2, (), 1),
        (2, (node(NodePhase.BOOTING), node(NodePhase.VERIFYING)), 3),
        (2, (node(NodePhase.REBOOTING), node(active=True)), 2),
        (3, (node(), node(active=True), node(cordoned=True)), 1),
        (3, (node(NodePhase.CORDONED), node(NodePhase.DRAINING)), 0),
        (4, (node(),), 0),
        (0, (node(), node(), node(), node()), 3),
    ],
)
def test_free_are_the_nodes_to_come_the_empty_ones_and_those_it_may_still_want(
    target: int, nodes: Sequence[WantedNode], free: int
) -> None:
    assert open_pool(nodes=nodes, targetNodes=target).free == free


@pytest.mark.parametrize("capacity", ["True", "False"])
def test_a_node_that_is_reserved_for_the_control_plane_is_not_free(capacity: str) -> None:
    idle = node(reserved=CONTROL_PLANE)
    booting = node(NodePhase.REBOOTING, reserved=CONTROL_PLANE)

    found = pool(
        nodes=(idle, booting, node(active=True)), capacity=capacity, targetNodes=1, maxNodes=1
    )

    assert found is not None
    assert found.free == 0


def test_a_node_that_is_no_machines_yet_is_free_where_machines_are_to_be_had() -> None:
    active = node(active=True)
    asked = [
        pool("train", (active,), deleting=False, validated="True", capacity=capacity, targetNodes=3)
        for capacity in ("True", "False")
    ]

    assert [each.free for each in asked if each is not None] == [2, 0]


# Which of several.


def test_a_pod_counts_for_the_first_pool_by_name_that_takes_it() -> None:
    pools = [open_pool("b"), open_pool("a", nodeLabels={"team": "red"}), open_pool("c")]

    shares = shared_out({asks(): 2, asks(4, team="red"): 1}, pools)

    assert shares == {"a": {NODE: 2, Shape(4, 0): 1}, "b": {}, "c": {}}


def test_pods_beyond_what_a_pool_may_have_count_for_the_next() -> None:
    pools = [open_pool("a", maxNodes=2), open_pool("b", maxNodes=1), open_pool("c")]

    shares = shared_out({asks(4): 7}, pools)

    assert shares == {"a": {Shape(4, 0): 4}, "b": {Shape(4, 0): 2}, "c": {Shape(4, 0): 1}}


def test_pods_for_which_no_pool_may_have_a_node_count_for_the_first() -> None:
    pools = [open_pool("a", maxNodes=1), open_pool("b", maxNodes=1)]

    shares = shared_out({asks(): 5}, pools)

    assert shares == {"a": {NODE: 4}, "b": {NODE: 1}}


def test_pods_that_only_one_pool_takes_come_before_those_that_have_a_choice() -> None:
    pools = [open_pool("a", maxNodes=1, nodeLabels={"team": "red"}), open_pool("b")]

    shares = shared_out({asks(): 1, asks(team="red"): 1}, pools)

    assert shares == {"a": {NODE: 1}, "b": {NODE: 1}}


def test_a_pod_that_asks_for_no_gpu_counts_for_gpus_last() -> None:
    pools = [open_pool("a"), open_pool("b", instanceType=CPU, maxNodes=1)]

    shares = shared_out({asks(0, NO_GPU): 111}, pools)

    assert shares == {"a": {Shape(0, 0): 1}, "b": {Shape(0, 0): 110}}


def test_a_pod_that_no_pool_takes_counts_for_none() -> None:
    assert shared_out({asks(9): 3}, [open_pool()]) == {"train": {}}
    assert shared_out({asks(): 3}, []) == {}


DEMANDS = st.dictionaries(
    st.builds(
        asks,
        st.integers(0, 9),
        st.sampled_from((NO_GPU, Toleration(key="team", operator="Exists"))),
        cpu=st.sampled_from(("0", "1", "70")),
    ),
    st.integers(1, 300),
    max_size=8,
)
RED = Taint(key="team", value="red", effect="NoSchedule").model_dump()
POOLS = st.lists(
    st.builds(
        open_pool,
        st.sampled_from("abcdef"),
        instanceType=st.sampled_from((H100, CPU)),
        maxNodes=st.integers(0, 4),
        nodeTaints=st.sampled_from(([], [RED])),
    ),
    unique_by=lambda each: each.name,
    max_size=4,
)


@given(DEMANDS, POOLS)
def test_each_pod_that_a_pool_takes_counts_for_one_whatever_the_order(
    demands: Mapping[Demand, int], pools: Sequence[Opening]
) -> None:
    shares = shared_out(demands, pools)

    counted = sum(count for shapes in shares.values() for count in shapes.values())
    fitting = (
        count for demand, count in demands.items() if any(each.takes(demand) for each in pools)
    )
    assert counted == sum(fitting)
    for each in pools:
        taken = {each.shape(demand.requests) for demand in demands if each.takes(demand)}
        assert shares[each.name].keys() <= taken
    assert shares == shared_out(dict(list(demands.items())[::-1]), pools[::-1])


# What is said.


def said(*waiting: WaitingPods, generation: int = 4) -> PodsWaitingReported:
    """What is said of the NodePool `train`."""
    return PodsWaitingReported(
        org=ORG,
        cluster=CLUSTER,
        pool="train",
        uid="uid-train",
        generation=generation,
        waiting=waiting,
    )


def reports(
    demands: Mapping[Demand, int], *reported: PodsWaitingReported
) -> list[PodsWaitingReported]:
    """What is to be said of the NodePool `train`, of which this was said last."""
    last = {each.pool: each for each in reported}
    return [each.event for each in missing_reports(demands, [open_pool()], last, HERE)]


def test_what_waits_is_said_once_and_again_when_it_is_something_else() -> None:
    first = reports({asks(): 2, asks(0, NO_GPU): 3})

    assert first == [said(WaitingPods(gpus=8, count=2), WaitingPods(count=3))]
    assert reports({asks(0, NO_GPU): 3, asks(): 2}, *first) == []
    assert reports({asks(): 1}, *first) == [said(WaitingPods(gpus=8, count=1))]
    assert reports({}, *first) == [said()]


def test_an_agent_that_knows_of_no_report_says_that_nothing_waits() -> None:
    assert list(missing_reports({}, [open_pool()], {}, HERE)) == [ReportWaiting(said())]


def test_what_waits_is_said_of_each_generation_of_a_pool() -> None:
    assert reports({}, said(generation=3)) == [said()]


def test_of_too_many_shapes_those_that_ask_for_most_are_said() -> None:
    demands = {asks(gpus, accelerators=each): 1 for gpus in range(9) for each in range(9)}
    demands |= {
        asks(gpus, accelerators=each, cpu="70"): 1 for gpus in range(9) for each in range(9)
    }

    (event,) = reports(demands)

    assert len(event.waiting) == SHAPES_MAX
    assert (event.waiting[0].gpus, event.waiting[0].slots) == (8, 110)
    assert event.waiting[-1].gpus == 1
