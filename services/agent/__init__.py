"""What does a Kubernetes cluster show, and what is missing there? At the edge of the system.

The modules of this package are pure: from what the bus says and what the cluster shows, they
compute the actions that are missing. `agent.host` reads both sides and carries the actions out.
"""
