"""The organisation, the cluster, the zones and the instance types that tests use."""

from nodepool.contract.pods import reserved_taint

ORG, CLUSTER = "acme", "prod"
ZONE, WEST = "US-EAST-04A", "US-WEST-04A"
H100 = "gd-8xh100ib-i128"
A100 = "gd-8xa100-i128"
L40 = "gd-8xl40-i128"
PREFER_IDLE = {"scaleDownStrategy": "PreferIdle"}
"""The `lifecycle` of a NodePool that may lose Nodes on which Pods run."""
RACK = "node.coreweave.cloud/rack"
"""The topology label that names the rack of a machine."""
OWN_TAINT = reserved_taint(ORG).model_dump(mode="json")
"""The taint of each Node in production that is reserved for the organisation."""
INJECTED = "injected by a test"
"""The cause of a failure that a test has brought about."""
