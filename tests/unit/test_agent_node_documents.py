"""Nodes as the agent reads them."""

from hypothesis import given
from hypothesis import strategies as st

from agent.nodes.objects import node_object, wanted_node
from agent.reading import Document, UnreadableDocument
from nodepool.contract.model import NodePhase, Taint

# Documents.


def test_a_node_of_the_read_model_is_read() -> None:
    document = {
        "metadata": {
            "resourceVersion": "40",
            "labels": {
                "compute.coreweave.com/node-pool": "train",
                "topology.kubernetes.io/zone": "us-east-04a",
            },
        },
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {
            "phase": "draining",
            "assignment": 7,
            "cordon": 2,
            "lock": 33,
            "drain": "safe",
            "conditions": [{"type": "CWRegistered", "status": "True"}],
        },
    }

    node = wanted_node(document, "n1")

    assert (node.pool, node.zone, node.assignment, node.version) == (
        "train",
        "us-east-04a",
        7,
        "40",
    )
    assert (node.phase, node.registered, node.unschedulable) == (NodePhase.DRAINING, True, True)
    assert (node.cordon, node.lock, node.drain) == (2, 33, "safe")
    assert node.taints == (Taint(key="k", effect="NoSchedule"),)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "status",
                    "labels",
                    "taints",
                    "conditions",
                    "name",
                    "uid",
                    "annotations",
                    "phase",
                    "drain",
                    "key",
                    "effect",
                    "timeAdded",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), ANYTHING))
def test_a_document_of_any_shape_is_read_or_named_unreadable(document: Document) -> None:
    for read in (node_object, lambda each: wanted_node(each, "n1")):
        fault = ": must be "
        try:
            read(document)
        except UnreadableDocument as error:
            fault = str(error)
        assert ": must be " in fault
