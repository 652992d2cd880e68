"""The kinds of object in a cluster that the agent reads or writes."""

from typing import Final

from nodepool.contract.model import API_VERSION
from nodepool.kube.api import Resource

NODE_POOLS: Final = Resource(f"apis/{API_VERSION}", "nodepools", "NodePool")
NODES: Final = Resource("api/v1", "nodes", "Node")
PODS: Final = Resource("api/v1", "pods", "Pod")
