"""A policy of a cluster that refuses what the agent changes of one object."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

from testbed.agent import USER
from testbed.cluster import Cluster, wait_until

Reason = Literal["Invalid", "Forbidden"]
HEEDED_S: Final = 30.0
WHY: Final = "platform has frozen this object"


@contextmanager
def frozen(
    cluster: Cluster,
    group: str,
    version: str,
    resource: str,
    name: str,
    reason: Reason = "Invalid",
) -> Iterator[None]:
    """While it lasts, a policy refuses each change that the agent makes of an object.

    resource: its plural, with a subresource where that is meant.
    reason: what the API server replies, which is 422 or 403.
    """
    policy = f"freezes-{name}"
    cluster.kubectl(
        "apply",
        "-f",
        "-",
        given=json.dumps(
            {
                "apiVersion": "v1",
                "kind": "List",
                "items": [
                    _policy(policy, group, version, resource, name, reason),
                    {
                        "apiVersion": "admissionregistration.k8s.io/v1",
                        "kind": "ValidatingAdmissionPolicyBinding",
                        "metadata": {"name": policy},
                        "spec": {"policyName": policy, "validationActions": ["Deny"]},
                    },
                ],
            }
        ),
    )
    try:
        # A policy is heeded some time after it was stored.
        wait_until("it is heeded", lambda: _is_frozen(cluster, resource, name), HEEDED_S)
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", kind, policy)


def _policy(
    policy: str, group: str, version: str, resource: str, name: str, reason: Reason
) -> object:
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["UPDATE"],
        "resources": [resource],
        "resourceNames": [name],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": policy},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [
                {"name": "agent", "expression": f"request.userInfo.username == '{USER}'"}
            ],
            "validations": [{"expression": "false", "message": WHY, "reason": reason}],
        },
    }


def _is_frozen(cluster: Cluster, resource: str, name: str) -> bool:
    plural, _, subresource = resource.partition("/")
    what = (plural, name, *([f"--subresource={subresource}"] if subresource else []))
    patch = '{"metadata": {"annotations": {"tried": "yes"}}}'
    as_agent = (f"--as={USER}", "--as-group=system:serviceaccounts", "--dry-run=server")
    return WHY in cluster.run("patch", *what, "--type=merge", "-p", patch, *as_agent).stderr
