"""The kinds of object in a cluster that the agent reads or writes."""

from typing import Final

from agent.host.api import Resource
from nodepool.contract.model import API_VERSION

NODE_POOLS: Final = Resource(f"apis/{API_VERSION}", "nodepools", "NodePool")
NODES: Final = Resource("api/v1", "nodes", "Node")
PODS: Final = Resource("api/v1", "pods", "Pod")
EVENTS: Final = Resource("api/v1", "events", "Event")
