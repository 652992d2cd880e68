"""The agent at work: it watches the bus and the cluster, and carries out what is missing."""
