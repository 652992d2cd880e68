"""The admission policies: whom they exempt, and that the API server understands them."""

import json
from collections.abc import Sequence

import yaml

from kube.declared import AGENT
from kube.manifests import ROOT
from testbed.cluster import Cluster, wait_until

OF_THE_AGENT = "nodepool-agent"
"""The policy that confines the agent, and that nobody else meets."""


def test_every_policy_exempts_the_same_and_is_bound(declared: Cluster) -> None:
    text = (ROOT / AGENT / "validating.yaml").read_text(encoding="utf-8")
    documents = [*yaml.safe_load_all(text)]
    policies = [item for item in documents if item["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [item for item in documents if item["kind"].endswith("Binding")]

    exempt = {
        json.dumps(item["spec"]["matchConditions"])
        for item in policies
        if item["metadata"]["name"] != OF_THE_AGENT
    }

    assert len(exempt) == 1
    assert [item["spec"]["policyName"] for item in bindings] == [
        item["metadata"]["name"] for item in policies
    ]
    assert all(item["spec"]["validationActions"] == ["Deny"] for item in bindings)


def test_the_api_server_has_no_doubts_about_an_expression(declared: Cluster) -> None:
    def doubts() -> Sequence[object]:
        found = declared.objects("validatingadmissionpolicies")
        return [item["status"].get("typeChecking") for item in found]

    wait_until("each expression was checked", lambda: None not in doubts(), 30)

    assert doubts() == [{}] * 5
