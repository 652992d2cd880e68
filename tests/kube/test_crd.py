"""What kubectl prints of NodePools, column for column, where no agent runs."""

import re

from kube.declared import HEALTHY, applied, conditions, set_status
from nodepool.contract.model import FINALIZER, NodePoolSpec
from support.described import DESCRIBED
from testbed.cluster import Cluster
from testbed.plane import A100, H100, node_pool


def test_get_prints_the_documented_columns(declared: Cluster) -> None:
    with applied(declared, node_pool("columns", instanceType=A100)):
        set_status(
            declared, "columns", conditions=conditions(*HEALTHY), currentNodes=1, inProgress=0
        )
        short = declared.kubectl("get", "nodepools", "columns").splitlines()
        wide = declared.kubectl("get", "nodepools", "columns", "-o", "wide").splitlines()

    assert re.split(r" {2,}", short[0].strip()) == [
        *("NAME", "INSTANCE TYPE", "TARGET", "INPROGRESS", "CURRENT"),
        *("VALIDATED", "CAPACITY", "QUOTA", "AGE"),
    ]
    assert short[1].split()[:-1] == ["columns", A100, "1", "0", "1", "Valid", "Sufficient", "Under"]
    assert re.split(r" {2,}", wide[0].strip()) == [
        *("NAME", "INSTANCE TYPE", "TARGET", "INPROGRESS", "CURRENT"),
        *("VALIDATED", "CAPACITY", "QUOTA"),
        *("ALLOCATEDNODES", "ALLOCATED", "ALLOCATEDREASON", "ACCEPTED", "AGE"),
    ]
    assert wide[1].split()[:-1] == short[1].split()[:-1], "what is deprecated is left empty"


def test_the_deprecated_conditions_are_shown_with_wide_where_there_are_some(
    declared: Cluster,
) -> None:
    given = conditions(("Allocated", "Complete", "x"), ("Accepted", "Accepted", "x"))
    with applied(declared, node_pool("deprecated")):
        set_status(declared, "deprecated", conditions=given, allocatedNodes=3)
        wide = declared.kubectl("get", "np", "deprecated", "-o", "wide", "--no-headers")

    assert wide.split()[:-1] == ["deprecated", H100, "1", "3", "True", "Complete", "Accepted"]


FIELDS = r"(?m)^(  (?:Creation Timestamp|Resource Version|UID): +).*$"
"""The fields of its metadata that every NodePool has of its own."""


def test_describe_prints_what_is_documented(declared: Cluster) -> None:
    with applied(declared, node_pool("described", instanceType=A100), "create"):
        set_status(
            declared, "described", conditions=conditions(*HEALTHY), currentNodes=1, inProgress=0
        )
        described = declared.kubectl("describe", "nodepools", "described")

    # Not documented: the finalizer with which its deletion waits for its Nodes, and the generation
    # that tools which wait for objects look at.
    described = described.replace(f"  Finalizers:\n    {FINALIZER}\n", "")
    described = re.sub(r"  Observed Generation: +0\n", "", described)
    documented = DESCRIBED.replace("test-pool", "described") + "\n"
    # kubectl aligns the lines before and after it apart.
    shown, expected = (
        re.sub(":  +", ": ", re.sub(FIELDS, r"\1*", text)) for text in (described, documented)
    )
    assert shown == expected


def test_explain_documents_each_field_of_a_spec(declared: Cluster) -> None:
    properties = NodePoolSpec.model_json_schema(by_alias=True)["properties"]

    explained = declared.kubectl("explain", "nodepools.spec")

    found = re.findall(r"(?m)^  (\w+)\t<(.*)>.*\n(?:  enum: .*\n)?    (\S.*)", explained)
    assert sorted(name for name, _, _ in found) == sorted(properties)
    deeper = declared.kubectl("explain", "np.spec.lifecycle.scaleDownStrategy")
    assert "Which Nodes may be removed when the NodePool shrinks." in deeper
    assert "ENUM:\n    IdleOnly\n    PreferIdle\n" in deeper


def test_a_node_pool_goes_by_its_names_and_its_category(declared: Cluster) -> None:
    with applied(declared, node_pool("named")):
        names = [
            declared.kubectl("get", kind, "named", "-o", "name")
            for kind in ("nodepool", "nodepools", "np", "nodepools.compute.coreweave.com")
        ]
        assert "nodepool.compute.coreweave.com/named" in declared.kubectl(
            "get", "coreweave", "-o", "name"
        )

    assert {*names} == {"nodepool.compute.coreweave.com/named\n"}
