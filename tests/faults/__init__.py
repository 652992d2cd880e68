"""Real processes under faults: a cluster of servers and two replicas of each service, audited."""
