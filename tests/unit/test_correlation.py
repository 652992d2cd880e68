from datetime import UTC, datetime

from nodepool.contract.commands import PreemptNode, ScaleNodePool
from nodepool.contract.events import ClusterRegistered, MachineAdded, NodeActivityChanged, Wake
from nodepool.contract.messages import Envelope, Message, envelope_of
from nodepool.engine.correlation import CORRELATIONS_MAX, DROPPED, Correlation, Correlations

FIRST, SECOND = Correlation("c1", "00-a-b-01"), Correlation("c2")
UNKNOWN = Correlation()


def scale(pool: str) -> ScaleNodePool:
    """A command about a NodePool."""
    return ScaleNodePool(org="acme", cluster="prod", pool=pool, target_nodes=1)


def activity(node: str, pool: str = "train") -> NodeActivityChanged:
    """An event about a Node of a NodePool."""
    return NodeActivityChanged(
        org="acme",
        cluster="prod",
        pool=pool,
        node=node,
        zone="z",
        assignment=1,
        active=True,
        message="",
    )


def machine(name: str) -> MachineAdded:
    """An event about a machine."""
    return MachineAdded(zone="z", machine=name, instance_type="t")


def stored(message: Message, correlation: Correlation = UNKNOWN) -> Envelope[Message]:
    """A message as it is stored, with this correlation."""
    return envelope_of(type(message)).model_construct(
        id="1", type=type(message).__name__, source="agent", data=message, **correlation._asdict()
    )


def test_a_nodepool_that_was_never_mentioned_has_no_correlation() -> None:
    assert Correlations().of(scale("train")) == UNKNOWN


def test_what_is_said_of_a_nodepool_has_the_correlation_of_its_last_message() -> None:
    correlations = Correlations()

    correlations.note(scale("train"), FIRST)
    correlations.note(scale("serve"), SECOND)

    assert correlations.of(activity("n1", "train")) == FIRST
    assert correlations.of(scale("serve")) == SECOND
    correlations.note(activity("n1", "train"), SECOND)
    assert correlations.of(scale("train")) == SECOND


def test_what_is_said_of_a_machine_has_the_correlation_of_its_node() -> None:
    correlations = Correlations()

    correlations.note(activity("n1"), FIRST)
    correlations.note(scale("train"), SECOND)

    assert correlations.of(machine("n1")) == FIRST
    assert correlations.of(machine("n2")) == UNKNOWN


def test_a_message_without_a_correlation_does_not_hide_the_one_before() -> None:
    correlations = Correlations()

    correlations.note(scale("train"), FIRST)
    correlations.note(scale("train"), Correlation(None, "00-c-d-01"))

    assert correlations.of(scale("train")) == FIRST


def test_messages_about_neither_nodepool_nor_machine_have_no_correlation() -> None:
    correlations = Correlations()
    cluster = ClusterRegistered(org="acme", cluster="prod", zone="z")
    wake = Wake(service="quota", due=datetime(2026, 1, 1, tzinfo=UTC))

    for message in (cluster, wake, machine("n1")):
        correlations.note(message, FIRST)

    assert [correlations.of(item) for item in (cluster, wake, machine("n1"))] == [UNKNOWN] * 3


def test_the_nodepools_that_were_mentioned_longest_ago_are_forgotten_first() -> None:
    correlations = Correlations()
    for number in range(CORRELATIONS_MAX + DROPPED):
        correlations.note(scale(f"p{number}"), FIRST)

    correlations.note(scale("p0"), SECOND)
    correlations.note(scale("one more"), FIRST)

    assert correlations.of(scale("p1")) == correlations.of(scale(f"p{DROPPED}")) == UNKNOWN
    assert correlations.of(scale("p0")) == SECOND
    assert correlations.of(scale(f"p{DROPPED + 1}")) == FIRST


def test_what_follows_from_a_message_has_its_correlation() -> None:
    correlations = Correlations()

    correlations.note(activity("n1"), FIRST)

    assert correlations.of_cause(stored(activity("n1"), SECOND)) == SECOND


def test_what_follows_from_an_event_without_one_has_that_of_its_node_then_of_its_nodepool() -> None:
    correlations = Correlations()

    correlations.note(activity("n1"), FIRST)
    correlations.note(scale("train"), SECOND)

    events = (activity("n1"), activity("n2"), machine("n1"), machine("n2"), activity("n3", "serve"))
    assert [correlations.of_cause(stored(event)) for event in events] == [
        FIRST,
        SECOND,
        FIRST,
        UNKNOWN,
        UNKNOWN,
    ]


def test_what_follows_from_an_event_with_a_trace_of_its_own_stays_in_it() -> None:
    correlations = Correlations()

    correlations.note(activity("n1"), FIRST)

    event = stored(activity("n1"), Correlation(None, "00-c-d-01", "vendor=1"))
    assert correlations.of_cause(event) == Correlation("c1", "00-c-d-01", "vendor=1")


def test_what_follows_from_a_command_about_a_node_has_its_correlation() -> None:
    # given two commands about Nodes of one NodePool
    known = Correlations()
    for node in ("g1", "g2"):
        command = PreemptNode(org="acme", cluster="prod", pool="train", node=node)
        known.note_command(command, Correlation(f"preempt {node}"))

    # then what is said of each Node follows from its own command, until something else happens
    first, second = known.of(activity("g1")), known.of(activity("g2"))
    known.note(activity("g1"), Correlation("later"))

    assert first.correlationid == "preempt g1"
    assert second.correlationid == "preempt g2"
    assert known.of(activity("g1")).correlationid == "later"
