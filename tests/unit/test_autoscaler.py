"""The autoscaler: which target it has for a NodePool, and when."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler import Hears, Says
from autoscaler.decide import SERVICE
from autoscaler.state import State
from autoscaler.target import DELAY_OF_PODS
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    AutoscalingFailed,
    ClusterRegistered,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    NodeActivityChanged,
    NodePoolAutoscaled,
    NodePoolDeleting,
    NodePoolValidated,
    NodeUpdated,
    PodChanged,
    PodsWaitingReported,
    QuotaChecked,
    QuotaDeleted,
    QuotaSet,
    Wake,
)
from nodepool.contract.events.fleet import PodPhase
from nodepool.contract.messages import Message, PoolFields
from nodepool.contract.model import NodePhase, NodePoolSpec, RemovalReason, Taint
from nodepool.contract.pods import Pod, Toleration, WaitingPods
from nodepool.engine.snapshot import dump, load
from support.constants import H100, INJECTED
from support.single import NOON, SingleService

OF: PoolFields = {"org": "acme", "cluster": "prod", "pool": "train"}
ZONE, UID = "US-EAST-04A", "11111111-1111-1111-1111-111111111111"
CPU = "cd-gp-i64-erapids"
TEN = timedelta(minutes=10)
ONE = "targetNodes from 0 to 1: 1 Pod waits for 1 Node more"


class Story(SingleService[State, Hears, Says]):
    """The autoscaler from noon on; time passes only when a story says so.

    spec: the spec of the NodePool `train` as it was stored last.
    """

    def __init__(self, **spec: object) -> None:
        super().__init__(SERVICE, tick=timedelta())
        self.generation = 0
        self.fields: dict[str, object] = {
            "instanceType": H100,
            "targetNodes": 0,
            "minNodes": 0,
            "maxNodes": 8,
            "autoscaling": True,
        }
        self.fields |= spec
        self.hears(limit_of(100, kind=str(self.fields["instanceType"])))
        self.stores()

    def stores(
        self, autoscaled: str = "", reason: Validated = Validated.VALID, **spec: object
    ) -> list[str]:
        """The NodePool is stored with these fields changed; what is said then."""
        self.fields |= spec
        self.generation += 1
        event = validated(self.fields, self.generation, autoscaled)
        return self.says(event.model_copy(update={"reason": reason}))

    def follows(self) -> list[str]:
        """The validator stores the target that was said last; what is said then."""
        return self.stores(self.last.message, targetNodes=self.last.target)

    def says(self, *messages: Hears) -> list[str]:
        """What is said for these messages: targets with their reasons."""
        return self._texts(self.hears(*messages))

    def waits(self, *messages: Hears) -> list[str]:
        """The same, and in the moments after, in which the Pods go on waiting."""
        return self.says(*messages) + self.passes(DELAY_OF_PODS)

    def passes(self, time: timedelta) -> list[str]:
        """What is said while so much time passes."""
        end, said = self.now + time, list[str]()
        while (due := self.due) is not None and due <= end:
            self.now = max(self.now, due)
            said += self._texts(self.wake())
        self.now = end
        return said

    def wake_fails(self) -> list[object]:
        """What is reported of a wake that fails."""
        result = self._step(Wake(service="autoscaler", due=self.now), "")
        assert result.failure is not None
        return list(result.outputs)

    def _texts(self, outputs: Sequence[Message]) -> list[str]:
        for output in outputs:
            assert isinstance(output, NodePoolAutoscaled)
            assert (output.uid, output.generation) == (UID, self.generation)
            self.last = output
        return [output.message for output in outputs if isinstance(output, NodePoolAutoscaled)]


def limit_of(limit: int, used: int = 0, kind: str = H100) -> QuotaSet:
    """The limit of the organisation, of which so many Nodes are used."""
    return QuotaSet(org="acme", zone=ZONE, instance_type=kind, limit=limit, granted=used)


def judged(
    generation: int, granted: int, limit: int | None, used: int, reason: Quota = Quota.UNDER
) -> QuotaChecked:
    """The NodePool `train` may have so many Nodes."""
    return QuotaChecked(
        **OF,
        uid=UID,
        generation=generation,
        reason=reason,
        granted=granted,
        zone=ZONE,
        instance_type=H100,
        limit=limit,
        used=used,
        message="",
        number=generation,
    )


def validated(
    spec: Mapping[str, object], generation: int = 1, autoscaled: str = "", uid: str = UID
) -> NodePoolValidated:
    """The NodePool `train` with this spec."""
    return NodePoolValidated(
        **OF,
        uid=uid,
        zone=ZONE,
        generation=generation,
        version=1,
        created=NOON,
        spec=NodePoolSpec.model_validate(spec),
        reason=Validated.VALID,
        message="",
        autoscaled=autoscaled,
    )


def joins(
    node: str = "g1", assignment: int = 1, phase: NodePhase = NodePhase.PRODUCTION
) -> CWNodeRegistered:
    """A Node joins its cluster."""
    return CWNodeRegistered(
        **OF,
        node=node,
        zone=ZONE,
        assignment=assignment,
        labels={},
        annotations={},
        taints=(),
        phase=phase,
        message="",
    )


def assigned(node: str, assignment: int = 1) -> CWNodeAssigned:
    """A machine is given to the NodePool."""
    return CWNodeAssigned(
        **OF,
        node=node,
        zone=ZONE,
        assignment=assignment,
        uid=UID,
        instance_type=H100,
        labels={},
        message="",
    )


def fails_to_register(node: str, assignment: int = 1) -> CWNodeRegistrationFailed:
    """A Node never joined its cluster."""
    return CWNodeRegistrationFailed(
        **OF, node=node, zone=ZONE, assignment=assignment, uid=UID, message=""
    )


def updated(
    node: str = "g1",
    phase: NodePhase = NodePhase.PRODUCTION,
    *,
    unschedulable: bool = False,
    removal: RemovalReason | None = None,
) -> NodeUpdated:
    """A Node looks like this from now on."""
    return NodeUpdated(
        **OF,
        node=node,
        zone=ZONE,
        assignment=1,
        phase=phase,
        unschedulable=unschedulable,
        labels={},
        annotations={},
        taints=(),
        removal=removal,
    )


def leaves(node: str = "g1", assignment: int = 1) -> CWNodeDeleted:
    """A Node is gone."""
    return CWNodeDeleted(
        **OF,
        node=node,
        zone=ZONE,
        assignment=assignment,
        registered=True,
        uid=UID,
        removal=RemovalReason.SCALE_DOWN,
        message="",
    )


def active(node: str = "g1", *, active: bool = True, assignment: int = 1) -> NodeActivityChanged:
    """Work begins or ends on a Node."""
    return NodeActivityChanged(
        **OF, node=node, zone=ZONE, assignment=assignment, active=active, message=""
    )


def pod(
    name: str = "job",
    phase: PodPhase = "Pending",
    *,
    number: int = 1,
    uid: str = UID,
    **fields: object,
) -> PodChanged:
    """A Pod of 8 GPUs, or with these fields, is in this phase."""
    spec = Pod.model_validate({"name": name, "gpus": 8, **fields})
    return PodChanged(
        **OF,
        name=name,
        uid=uid,
        number=number,
        phase=phase,
        gpus=spec.gpus,
        accelerators=spec.accelerators,
        spec=spec if phase == "Pending" else None,
    )


def four_pods_that_wait() -> list[PodChanged]:
    """Four Pods that each take a Node."""
    return [pod(name, number=number) for number, name in enumerate("abcd", 1)]


def a_pool_at_work(nodes: int = 1, **spec: object) -> Story:
    """A NodePool that has so many Nodes, each with work, and wants no more; ten minutes later."""
    story = Story(targetNodes=nodes, **spec)
    for number in range(1, nodes + 1):
        story.says(joins(f"g{number}"), active(f"g{number}"))
    story.passes(TEN)
    return story


# Up.


def test_a_pool_without_nodes_gets_as_many_as_its_pods_fill_at_once() -> None:
    story = Story()

    assert story.waits(pod("a"), pod("b")) == [
        "targetNodes from 0 to 2: 2 Pods wait for 2 Nodes more"
    ]
    assert story.follows() == []


def test_a_pod_that_is_placed_within_a_moment_asks_for_nothing() -> None:
    story = Story()
    story.says(pod("a"))
    story.passes(DELAY_OF_PODS - timedelta(seconds=1))

    story.says(pod("a", "Running"))

    assert story.passes(TEN) == []


def test_pods_wait_for_a_moment_from_when_there_was_no_room_for_them() -> None:
    story = Story(targetNodes=1)
    story.says(joins(), pod("a"))
    story.passes(DELAY_OF_PODS)

    story.says(active())

    assert story.passes(DELAY_OF_PODS - timedelta(seconds=1)) == []
    assert story.passes(timedelta(seconds=1)) == [
        "targetNodes from 1 to 2: 1 Pod waits for 1 Node more"
    ]


def test_pods_that_share_a_node_do_not_ask_for_two() -> None:
    story = Story()

    story.waits(pod("a", gpus=4))
    said = story.follows() + story.waits(pod("b", gpus=4))

    assert said == []


def test_a_node_that_is_requested_already_is_not_requested_again() -> None:
    story = a_pool_at_work(1)
    story.waits(pod("a"))
    story.follows()

    assert story.waits(pod("a", number=1)) == []


def test_a_node_that_has_just_joined_takes_the_pod_it_was_requested_for() -> None:
    story = Story()
    story.waits(pod("a"))
    story.follows()

    said = story.says(joins(), pod("a", "Running"), active())

    assert (said, story.passes(TEN)) == ([], [])


def test_no_more_nodes_are_wanted_than_the_pool_may_have() -> None:
    story = Story(maxNodes=1)

    said = story.waits(pod("a"), pod("b"))

    assert said == ["targetNodes from 0 to 1, which is maxNodes: 2 Pods wait for 1 Node more"]
    assert story.follows() == []


@pytest.mark.parametrize("name", ["gpus", "accelerators"])
def test_a_pod_that_no_node_could_take_asks_for_none(name: str) -> None:
    assert Story().waits(pod("a", "Pending", number=1, uid=UID, **{name: 9})) == []


def test_a_pod_that_all_nodes_of_the_pool_repel_asks_for_none_until_they_do_not() -> None:
    taint = Taint(key="team", value="red", effect="NoSchedule").model_dump()
    story = Story(nodeTaints=[taint])

    repelled = story.waits(pod("a"))
    tolerated = story.waits(
        pod("b", tolerations=[Toleration(key="team", value="red").model_dump()])
    )
    story.follows()

    assert repelled == []
    assert tolerated == [ONE]
    assert story.stores(nodeTaints=[]) + story.passes(DELAY_OF_PODS) == [
        "targetNodes from 1 to 2: 2 Pods wait for 1 Node more"
    ]


def test_a_pod_without_gpus_may_ask_for_a_node_without_any() -> None:
    story = Story(instanceType=CPU)

    said = story.waits(pod("a", gpus=0))

    assert said == [ONE]


def test_a_cordoned_node_does_not_count_as_one_that_could_take_a_pod() -> None:
    story = Story(targetNodes=1)
    story.says(joins(), updated(unschedulable=True, phase=NodePhase.CORDONED))

    assert story.waits(pod("a")) == ["targetNodes from 1 to 2: 1 Pod waits for 1 Node more"]


@pytest.mark.parametrize("phase", [NodePhase.VERIFYING, NodePhase.REBOOTING])
def test_a_node_that_is_verified_or_reboots_is_waited_for(phase: NodePhase) -> None:
    story = Story()
    story.waits(pod("a"))
    story.follows()

    said = story.waits(joins(phase=phase), updated(phase=phase)) + story.waits(updated())

    assert said + story.says(pod("a", "Running"), active()) == []


def test_a_pod_of_an_earlier_pool_or_that_has_gone_asks_for_nothing() -> None:
    story = Story(maxNodes=0)
    story.says(pod("a"), pod("b"), pod("c"))

    story.says(pod("a", "Running"), pod("b", "Gone"), pod("c", "Gone", number=0))
    story.says(pod("d", uid="another"))

    assert story.stores(maxNodes=8) + story.passes(DELAY_OF_PODS) == [ONE]


# Down.


def test_a_node_that_is_idle_for_ten_minutes_goes_and_not_sooner() -> None:
    story = a_pool_at_work(2)
    story.says(active("g2", active=False))

    early = story.passes(TEN - timedelta(seconds=1))

    assert early == []
    assert story.passes(timedelta(seconds=1)) == [
        "targetNodes from 2 to 1: 1 Node has been idle for 10 minutes"
    ]
    assert story.follows() == []


def test_a_node_that_works_in_between_has_to_be_idle_for_ten_minutes_again() -> None:
    story = a_pool_at_work(1)
    story.says(active(active=False))
    story.passes(TEN - timedelta(seconds=1))

    story.says(active(), active(active=False))

    assert story.passes(TEN - timedelta(seconds=1)) == []
    assert len(story.passes(timedelta(seconds=1))) == 1


def test_no_node_goes_below_the_fewest_that_the_pool_may_have() -> None:
    story = a_pool_at_work(3, minNodes=2)
    for node in ("g1", "g2", "g3"):
        story.says(active(node, active=False))

    assert story.passes(TEN) == ["targetNodes from 3 to 2: 3 Nodes have been idle for 10 minutes"]
    assert story.follows() == []
    assert story.passes(6 * TEN) == []


def test_nothing_goes_while_a_pod_waits() -> None:
    story = a_pool_at_work(2, maxNodes=2)
    story.says(active("g2", active=False), updated("g2", unschedulable=True), pod("a"))

    assert story.passes(6 * TEN) == []
    assert story.says(pod("a", "Gone")) == [
        "targetNodes from 2 to 1: 1 Node has been idle for 10 minutes"
    ]


# Pods of Kubernetes, which an agent counts.


def connected(*, kubernetes: bool = True) -> ClusterRegistered:
    """The cluster, which an agent connects to Kubernetes."""
    return ClusterRegistered(org="acme", cluster="prod", zone=ZONE, kubernetes=kubernetes)


def counted(*waiting: WaitingPods, uid: str = UID, generation: int = 1) -> PodsWaitingReported:
    """The agent reports that these Pods wait, and no others."""
    return PodsWaitingReported(**OF, uid=uid, generation=generation, waiting=waiting)


FOUR_BY_FOUR = WaitingPods(gpus=4, count=4)


def an_agents_pool(**spec: object) -> Story:
    """A NodePool in a cluster that an agent connects to Kubernetes."""
    story = Story(**spec)
    story.says(connected())
    return story


def test_a_pool_gets_nodes_for_pods_that_an_agent_has_counted() -> None:
    story = an_agents_pool()

    said = story.waits(counted(FOUR_BY_FOUR, WaitingPods(gpus=8, accelerators=8, count=1)))

    assert said == ["targetNodes from 0 to 3: 5 Pods wait for 3 Nodes more"]
    assert story.follows() == []


# A limit.


def test_a_target_is_raised_as_far_as_quota_allows_and_further_when_the_limit_is_raised() -> None:
    story = Story()
    story.says(limit_of(5, used=2))

    first = story.waits(*four_pods_that_wait())
    story.follows()
    story.says(judged(2, 3, limit=5, used=5))
    blocked = story.passes(TEN)
    raised = story.says(limit_of(6, used=5))

    three = "targetNodes from 0 to 3, all that quota 5 allows"
    assert first == [f"{three}: 4 Pods wait, and quota lacks 1 Node for them"]
    assert blocked == []
    assert raised == ["targetNodes from 3 to 4: 4 Pods wait for 1 Node more"]


def test_a_limit_that_is_not_set_allows_no_node() -> None:
    story = Story()
    story.hears(QuotaDeleted(org="acme", zone=ZONE, instance_type=H100, granted=0))

    blocked = story.waits(*four_pods_that_wait())
    due = story.due
    set_again = story.says(limit_of(9))

    assert (blocked, due) == ([], None)
    assert set_again == ["targetNodes from 0 to 4: 4 Pods wait for 4 Nodes more"]


def test_a_target_goes_back_to_the_nodes_that_a_nodepool_has_where_no_limit_is_set() -> None:
    # given a NodePool whose only Node is to leave, and whose limit was unset
    story = Story()
    story.says(limit_of(4))
    story.hears(assigned("g1"))
    story.hears(QuotaDeleted(org="acme", zone=ZONE, instance_type=H100, granted=1))

    kept = story.waits(*four_pods_that_wait())

    one = "targetNodes from 0 to 1, as many as it has and no quota is set"
    assert kept == [f"{one}: 4 Pods wait, and quota lacks 3 Nodes for them"]


def test_a_target_that_another_pool_took_the_quota_for_becomes_what_quota_allows() -> None:
    story = Story()
    story.says(limit_of(4))
    story.waits(*four_pods_that_wait())

    story.follows()
    corrected = story.waits(judged(2, 0, limit=4, used=1, reason=Quota.OVER))
    story.follows()
    story.says(judged(3, 3, limit=4, used=4))

    three = "targetNodes from 4 to 3, all that quota 4 allows"
    assert corrected == [f"{three}: 4 Pods wait, and quota lacks 1 Node for them"]
    assert story.passes(TEN) == []


def test_a_pool_that_is_gone_asks_for_nothing_more_under_its_limit() -> None:
    story = Story()
    story.says(limit_of(4))
    story.waits(*four_pods_that_wait())

    story.hears(NodePoolDeleting(**OF, uid=UID, generation=1, since=NOON))
    story.hears(CWNodePoolDeleted(**OF, uid=UID, message=""))

    (ledger,) = story.state.ledgers.values()
    assert (ledger.asked, len(ledger.full)) == (0, 0)


def test_pods_that_take_the_place_of_many_fill_a_node_by_that() -> None:
    story = an_agents_pool(instanceType=CPU)

    assert story.waits(counted(WaitingPods(slots=50, count=5))) == [
        "targetNodes from 0 to 3: 5 Pods wait for 3 Nodes more"
    ]


def test_a_report_replaces_the_one_before() -> None:
    story = an_agents_pool()
    story.says(counted(FOUR_BY_FOUR))
    story.passes(DELAY_OF_PODS - timedelta(seconds=1))

    story.says(counted())

    assert story.passes(TEN) == []


def test_pods_that_are_counted_keep_idle_nodes_until_none_is() -> None:
    story = an_agents_pool(targetNodes=1, maxNodes=1)
    story.says(joins(), counted(FOUR_BY_FOUR))

    assert story.passes(6 * TEN) == []
    assert story.says(counted()) == ["targetNodes from 1 to 0: 1 Node has been idle for 10 minutes"]


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(counted(FOUR_BY_FOUR, uid="another"), id="of an earlier NodePool"),
        pytest.param(counted(WaitingPods(gpus=9, count=1)), id="of Pods that no Node takes"),
        pytest.param(
            counted(FOUR_BY_FOUR).model_copy(update={"pool": "other"}), id="of another NodePool"
        ),
    ],
)
def test_a_report_that_is_not_about_this_pool_asks_for_nothing(report: PodsWaitingReported) -> None:
    assert an_agents_pool().waits(report) == []


@pytest.mark.parametrize("registered", [(), (connected(kubernetes=False),)])
def test_a_report_is_believed_only_where_an_agent_connects_the_cluster(
    registered: Sequence[ClusterRegistered],
) -> None:
    story = Story()

    assert story.waits(*registered, counted(FOUR_BY_FOUR)) == []
    assert story.waits(connected(), counted(FOUR_BY_FOUR)) != []


def test_simulated_pods_do_not_count_where_an_agent_counts() -> None:
    story = Story(maxNodes=0)
    story.says(pod("a"), connected())

    story.says(counted(WaitingPods(gpus=8, count=2)), pod("a", "Gone"), pod("b"))

    assert story.stores(maxNodes=8) + story.passes(DELAY_OF_PODS) == [
        "targetNodes from 0 to 2: 2 Pods wait for 2 Nodes more"
    ]


def test_other_taints_leave_it_to_the_agent_to_count_again() -> None:
    story = an_agents_pool(maxNodes=0)
    story.says(counted(FOUR_BY_FOUR))

    taint = Taint(key="team", value="red", effect="NoSchedule").model_dump()
    said = story.stores(maxNodes=8, nodeTaints=[taint]) + story.passes(DELAY_OF_PODS)

    assert said == ["targetNodes from 0 to 2: 4 Pods wait for 2 Nodes more"]


def test_what_was_counted_is_forgotten_while_a_pool_is_not_autoscaled() -> None:
    story = an_agents_pool(maxNodes=0)
    story.says(counted(FOUR_BY_FOUR))
    story.stores(autoscaling=False)

    before = story.stores(autoscaling=True, maxNodes=8) + story.passes(TEN)

    assert before == []
    assert len(story.waits(counted(FOUR_BY_FOUR, generation=story.generation))) == 1


def test_what_was_counted_is_forgotten_while_a_pool_is_invalid() -> None:
    story = an_agents_pool(maxNodes=0)
    story.says(counted(FOUR_BY_FOUR))
    story.stores(reason=Validated.INVALID)

    assert story.stores(maxNodes=8) + story.passes(TEN) == []


def test_a_late_count_of_an_older_generation_changes_nothing() -> None:
    # given a NodePool that is no longer autoscaled when the count of its Pods arrives
    story = an_agents_pool(maxNodes=8)
    story.stores(autoscaling=False)
    story.says(counted(FOUR_BY_FOUR, generation=1))

    # when it is autoscaled again, after the Pods have ended
    said = story.stores(autoscaling=True) + story.passes(TEN)

    # then it does not grow for these Pods
    assert said == []


def test_a_new_pool_of_the_same_name_begins_without_what_was_counted() -> None:
    story = an_agents_pool(maxNodes=0)
    story.says(counted(FOUR_BY_FOUR), CWNodePoolDeleted(**OF, uid=UID, message=""))

    assert story.stores(maxNodes=8) + story.passes(TEN) == []


NAMES = st.sampled_from(("a", "b"))
NODES = st.sampled_from(("g1", "g2", "g3"))
CHANGES = st.one_of(
    st.builds(joins, NODES),
    st.builds(leaves, NODES),
    st.builds(updated, NODES, unschedulable=st.booleans()),
    st.builds(active, NODES, active=st.booleans()),
    st.builds(pod, NAMES, st.sampled_from(("Pending", "Running")), gpus=st.sampled_from((4, 8, 9))),
    st.just(5 * TEN),
)
"""What may happen to a NodePool, or that time passes."""


@given(st.lists(CHANGES, max_size=30))
def test_whatever_happens_nothing_goes_while_a_pod_waits(
    changes: Sequence[Hears | timedelta],
) -> None:
    story, waiting = Story(targetNodes=2, maxNodes=3), set[str]()

    for change in changes:
        if isinstance(change, PodChanged):
            waiting.discard(change.name)
            waiting |= {change.name} if change.phase == "Pending" and change.gpus <= 8 else set()
        said = story.passes(change) if isinstance(change, timedelta) else story.says(change)

        while said:
            assert not waiting or story.last.target > int(str(story.fields["targetNodes"]))
            said = story.follows()


def test_nothing_goes_for_ten_minutes_after_the_autoscaler_added_nodes() -> None:
    story = a_pool_at_work(1)
    story.says(active(active=False))
    story.passes(TEN - timedelta(minutes=1))
    story.waits(updated(unschedulable=True), pod("a"))
    story.follows()
    story.says(pod("a", "Gone"))

    assert story.passes(TEN - timedelta(seconds=1)) == []
    assert len(story.passes(timedelta(seconds=1))) == 1


def test_a_node_that_is_leaving_already_is_not_counted_twice() -> None:
    story = a_pool_at_work(2)
    story.says(active("g2", active=False))
    story.passes(TEN)
    story.follows()

    said = story.says(
        updated("g2", NodePhase.CORDONED, unschedulable=True, removal=RemovalReason.SCALE_DOWN),
        leaves("g2"),
    )

    assert said + story.passes(6 * TEN) == []


def test_nodes_that_never_come_are_given_up_once_no_pod_waits() -> None:
    story = Story(targetNodes=3)
    story.says(joins(), active())

    assert story.passes(TEN) == [
        "targetNodes from 3 to 1: no Pod waits, and 2 Nodes have been missing for 10 minutes"
    ]


def test_nodes_that_are_given_up_together_are_all_counted_in_the_reason() -> None:
    # given a NodePool with an idle Node, of which two more never come
    story = Story(targetNodes=3, minNodes=0)
    story.says(joins())

    # when the idle Node and the missing Nodes are given up at one moment
    # then the reason counts both
    assert story.passes(TEN) == [
        "targetNodes from 3 to 0: 1 Node has been idle and 2 Nodes have been missing for 10 minutes"
    ]


def test_a_node_that_boots_is_not_missing_and_one_that_fails_to_register_is() -> None:
    story = Story(targetNodes=2)
    story.says(joins(), active(), assigned("g2"))

    booting = story.passes(2 * TEN)
    story.says(fails_to_register("g2"))

    assert booting == []
    assert story.passes(TEN) == [
        "targetNodes from 2 to 1: no Pod waits, and 1 Node has been missing for 10 minutes"
    ]


@pytest.mark.parametrize("phase", [NodePhase.VERIFYING, NodePhase.REBOOTING])
def test_a_node_that_is_verified_or_reboots_is_neither_missing_nor_idle(phase: NodePhase) -> None:
    story = a_pool_at_work(1)

    story.says(updated(phase=phase), active(active=False))

    assert story.passes(6 * TEN) == []
    story.says(updated())
    assert story.passes(TEN) == ["targetNodes from 1 to 0: 1 Node has been idle for 10 minutes"]


def test_a_lost_node_is_waited_for_before_it_is_given_up() -> None:
    story = a_pool_at_work(2)

    story.says(leaves("g2"))

    assert story.passes(TEN - timedelta(seconds=1)) == []
    story.says(joins("g2", 2), active("g2", assignment=2))
    assert story.passes(6 * TEN) == []


def preempted(node: str) -> NodeUpdated:
    """A Node is cordoned as it is preempted."""
    cordoned, removal = NodePhase.CORDONED, RemovalReason.PREEMPTED
    return updated(node, cordoned, unschedulable=True, removal=removal)


def test_a_node_that_is_preempted_is_missing_only_once_it_has_left() -> None:
    # given two Nodes at work that are preempted
    story = a_pool_at_work(2)
    said = story.says(preempted("g1"), preempted("g2"))

    # when they leave seven minutes later
    said += story.passes(timedelta(minutes=7))
    said += story.says(leaves("g1"), leaves("g2"))
    said += story.passes(TEN - timedelta(seconds=1))

    # then the ten minutes begin as they leave
    assert said == []
    assert story.passes(timedelta(seconds=1)) == [
        "targetNodes from 2 to 0: no Pod waits, and 2 Nodes have been missing for 10 minutes"
    ]


def test_a_node_that_is_still_being_preempted_is_not_given_up_with_one_that_is_missing() -> None:
    # given three Nodes at work, of which one is lost, and one is preempted and does not leave
    story = a_pool_at_work(3)
    story.says(leaves("g2"), preempted("g3"))

    assert story.passes(6 * TEN) == [
        "targetNodes from 3 to 2: no Pod waits, and 1 Node has been missing for 10 minutes"
    ]
    assert story.follows() == []
    assert story.says(leaves("g3")) + story.passes(TEN) == [
        "targetNodes from 2 to 1: no Pod waits, and 1 Node has been missing for 10 minutes"
    ]


def test_a_node_that_is_lost_later_is_waited_for_as_long() -> None:
    # given a NodePool that has lost a Node
    story = a_pool_at_work(3)
    story.says(leaves("g1"))
    early = story.passes(TEN - timedelta(minutes=1))

    # when it loses another Node
    story.says(leaves("g2"))
    early += story.passes(timedelta(seconds=59))

    # then each of them is given up after its own ten minutes
    assert early == []
    assert story.passes(timedelta(seconds=1)) == [
        "targetNodes from 3 to 2: no Pod waits, and 1 Node has been missing for 10 minutes"
    ]
    assert story.follows() + story.passes(TEN - timedelta(seconds=61)) == []
    assert story.passes(timedelta(seconds=1)) == [
        "targetNodes from 2 to 1: no Pod waits, and 1 Node has been missing for 10 minutes"
    ]


def test_nodes_that_are_lost_within_a_minute_are_given_up_together() -> None:
    story = a_pool_at_work(3)
    story.says(leaves("g1"))
    early = story.passes(timedelta(seconds=20))
    story.says(leaves("g2"))

    assert early + story.passes(TEN - timedelta(seconds=1)) == []
    assert story.passes(timedelta(seconds=1)) == [
        "targetNodes from 3 to 1: no Pod waits, and 2 Nodes have been missing for 10 minutes"
    ]


def test_an_idle_node_is_not_kept_by_a_node_that_comes_and_goes() -> None:
    # given a NodePool with an idle Node, that has lost another Node
    story = a_pool_at_work(3)
    story.says(active("g2", active=False), leaves("g1"))

    # when the machine of its third Node comes and goes all the time
    early = list[str]()
    for assignment in (1, 2, 3):
        early += story.says(leaves("g3", assignment)) + story.passes(timedelta(minutes=3))
        stay = assignment + 1
        early += story.says(joins("g3", stay), active("g3", assignment=stay))
    early += story.says(leaves("g3", 4))

    # then the lost Node is given up after ten minutes, and the idle Node when the third is back
    assert early == []
    assert story.passes(timedelta(minutes=1)) == [
        "targetNodes from 3 to 2: no Pod waits, and 1 Node has been missing for 10 minutes"
    ]
    assert story.follows() + story.says(joins("g3", 5), active("g3", assignment=5)) == [
        "targetNodes from 2 to 1: 1 Node has been idle for 10 minutes"
    ]


# Never against a command, nor where it may not.


def test_a_target_that_a_command_set_stands_for_ten_minutes() -> None:
    story = a_pool_at_work(2)
    story.stores(targetNodes=3)

    down = story.passes(TEN - timedelta(minutes=1))
    up = story.says(pod("a"), pod("b"))

    assert (down, up) == ([], [])
    assert story.passes(timedelta(minutes=1)) == [
        "targetNodes from 3 to 4: 2 Pods wait for 1 Node more"
    ]


def test_a_change_of_anything_but_the_target_does_not_keep_the_autoscaler_waiting() -> None:
    story = Story(autoscaling=False)
    story.says(pod("a"))

    assert story.stores(autoscaling=True) + story.passes(DELAY_OF_PODS) == [ONE]


def test_a_command_that_came_before_voids_a_target_and_is_respected() -> None:
    story = Story()
    story.says(pod("a"))

    said = story.stores(targetNodes=5)

    assert said + story.passes(TEN - timedelta(seconds=1)) == []


def test_a_change_that_came_before_does_not_lose_what_is_right() -> None:
    story = Story()
    story.says(pod("a"))

    assert story.stores(nodeLabels={"a": "b"}) + story.passes(DELAY_OF_PODS) == [ONE]


def test_a_target_is_said_once_for_each_generation() -> None:
    story = Story()

    said = story.waits(pod("a"), pod("b")) + story.waits(joins(), pod("c"))

    assert len(said) == 1


def test_turning_autoscaling_off_ends_it_at_once() -> None:
    story = a_pool_at_work(2)
    story.says(active(active=False))

    story.stores(autoscaling=False)

    assert story.says(pod("a"), pod("b")) + story.passes(6 * TEN) == []
    assert story.due is None


def test_a_pool_that_is_invalid_or_goes_is_left_alone() -> None:
    story = Story()
    invalid = validated(story.fields, 2).model_copy(update={"reason": Validated.INVALID})
    going = NodePoolDeleting(**OF, uid=UID, generation=1, since=NOON)
    gone = CWNodePoolDeleted(**OF, uid=UID, message="")

    assert story.waits(invalid, pod("a")) == []
    story.generation = 2
    assert story.stores() == [ONE]
    assert story.says(going, pod("b"), gone, pod("c"), joins(), active()) == []
    assert len(story.state.pools) == 0


def test_pools_of_racks_are_left_alone() -> None:
    story = Story(instanceType="gb200-4x", targetNodes=18, maxNodes=36)

    assert story.says(pod("a", gpus=4)) + story.passes(6 * TEN) == []


def test_a_new_pool_of_the_same_name_begins_anew() -> None:
    story = a_pool_at_work(2)

    story.hears(validated({**story.fields, "targetNodes": 0}, uid="another"))

    pool = story.state.pools[next(iter(story.state.pools))]
    assert (pool.nodes.held, pool.waiting.count, pool.commanded) == (0, 0, None)


def test_the_end_of_an_earlier_pool_of_the_same_name_does_not_end_this_one() -> None:
    story = Story()

    story.hears(
        NodePoolDeleting(**OF, uid="another", generation=1, since=NOON),
        CWNodePoolDeleted(**OF, uid="another", message=""),
    )

    assert story.waits(pod("a")) == [ONE]


# Failures, and what is kept.


def test_a_target_that_could_not_be_determined_is_said_a_minute_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = a_pool_at_work(2)
    story.says(active("g2", active=False))

    def failing(*_: object) -> None:
        raise RuntimeError(INJECTED)

    monkeypatch.setattr("autoscaler.decide.advice", failing)
    story.now += TEN
    failure = story.wake_fails()
    monkeypatch.undo()

    assert failure == [
        AutoscalingFailed(
            **OF, message=f"internal error while autoscaling: RuntimeError: {INJECTED}"
        )
    ]
    assert story.passes(timedelta(seconds=59)) == []
    assert len(story.passes(timedelta(seconds=1))) == 1
    assert not story.state.work.failures


def test_a_message_that_could_not_be_processed_does_not_lose_what_is_due_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = a_pool_at_work(2)

    def failing(*_: object) -> None:
        raise RuntimeError(INJECTED)

    monkeypatch.setattr("autoscaler.decide.advice", failing)
    story.failure_of(active("g2", active=False))
    monkeypatch.undo()

    assert len(story.passes(TEN)) == 1


def test_a_state_is_the_same_after_it_was_written_down() -> None:
    story = a_pool_at_work(2)
    story.says(active("g2", active=False), pod("a", gpus=4), pod("b", gpus=9))

    lines = list(dump(story.folded))

    assert load(State, lines) == story.folded


def test_a_node_or_a_pod_takes_little_memory() -> None:
    story = a_pool_at_work(1)
    before = len(b"".join(dump(story.folded)))

    story.says(*(joins(f"g{number}") for number in range(2, 102)))

    assert len(b"".join(dump(story.folded))) - before < 100 * 200
