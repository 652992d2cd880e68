"""What is observed of a Node, by its machine or by the agent of its Kubernetes cluster."""

from nodepool.contract import events as on

NodeSeen = on.NodeObserved | on.NodeReported
"""What runs on a Node, and how the Node is marked."""
ConditionSeen = on.NodeConditionChanged | on.NodeConditionReported
"""A condition of a Node changed."""
