"""The keys of objects: one type for each kind, built and taken apart only here."""

from typing import NewType

UNNAMED = "_"
"""The token in place of an identity token that a message does not have."""
SLURM_JOB = "Slurm job "
"""How the name of a Slurm job begins among the work of a Node; no Pod has a space in its name."""
CONTROL_PLANE = "control-plane"
"""What a Node in production is reserved for that no NodePool can use."""
FLEET = "fleet"
"""The token in place of the organisation in messages about machines."""
TOKEN_MAX = 253
"""The most characters of an identity token, as of a DNS name; with more a command is refused."""
PoolPath = tuple[str, str, str]
"""The three identity tokens of a subject, general to particular: of a NodePool, its path."""

ClusterKey = NewType("ClusterKey", str)
"""A cluster: `org/cluster`."""
PoolKey = NewType("PoolKey", str)
"""A NodePool: `org/cluster/pool`."""
NodeKey = NewType("NodeKey", str)
"""A Node in its cluster: `org/cluster/node`."""
MachineKey = NewType("MachineKey", str)
"""A machine: `zone/machine`. A Node has the name of its machine, so this is a Node's key too."""
OfferingKey = NewType("OfferingKey", str)
"""All machines of one type in one zone: `zone/instance type`."""
LedgerKey = NewType("LedgerKey", str)
"""One limit: `org/zone/instance type`."""


def token(name: str) -> str:
    """Return a name as one subject token, with `~` for each dot: NATS separates tokens by dots."""
    return name.replace(".", "~")


def name_at(token: str) -> str:
    """Return the name that a subject token stands for."""
    return token.replace("~", ".")


def cut(path: PoolPath) -> PoolPath:
    """Return the identity with each token short enough for any subject.

    A token that is too long is cut to end with an ellipsis. It is still longer than `TOKEN_MAX`, so
    no object has this identity.
    """
    org, cluster, pool = map(_cut, path)
    return org, cluster, pool


def _cut(name: str) -> str:
    return name if len(name) <= TOKEN_MAX else f"{name[:TOKEN_MAX]}…"


def cluster_key(org: str, cluster: str) -> ClusterKey:
    """Return the key of a cluster."""
    return ClusterKey(f"{org}/{cluster}")


def pool_key(org: str, cluster: str, pool: str) -> PoolKey:
    """Return the key of a NodePool."""
    return PoolKey(f"{org}/{cluster}/{pool}")


def node_key(org: str, cluster: str, node: str) -> NodeKey:
    """Return the key of a Node in its cluster."""
    return NodeKey(f"{org}/{cluster}/{node}")


def machine_key(zone: str, machine: str) -> MachineKey:
    """Return the key of a machine, and of the Node on this machine."""
    return MachineKey(f"{zone}/{machine}")


def offering_key(zone: str, instance_type: str) -> OfferingKey:
    """Return the key of all machines of a type in a zone."""
    return OfferingKey(f"{zone}/{instance_type}")


def ledger_key(org: str, zone: str, instance_type: str) -> LedgerKey:
    """Return the key of an organisation's limit for a type in a zone."""
    return LedgerKey(f"{org}/{zone}/{instance_type}")


def pool_path(key: PoolKey) -> PoolPath:
    """Return organisation, cluster and name of a NodePool."""
    org, cluster, pool = key.split("/", 2)
    return org, cluster, pool


def peer_name(cluster: str, pool: str) -> str:
    """Return the name of a NodePool in its organisation."""
    return f"{cluster}/{pool}"


def split_peer_name(name: str) -> tuple[str, str]:
    """Return the cluster and the NodePool in the name of a NodePool in its organisation."""
    cluster, _, pool = name.partition("/")
    return cluster, pool


def cluster_of(key: PoolKey) -> ClusterKey:
    """Return the key of the cluster of a NodePool."""
    org, cluster, _ = pool_path(key)
    return cluster_key(org, cluster)


def machine_parts(key: MachineKey) -> tuple[str, str]:
    """Return zone and name of a machine."""
    zone, _, machine = key.partition("/")
    return zone, machine


def offering_parts(key: OfferingKey) -> tuple[str, str]:
    """Return zone and instance type of an offering."""
    zone, _, instance_type = key.partition("/")
    return zone, instance_type


def ledger_parts(key: LedgerKey) -> tuple[str, str, str]:
    """Return organisation, zone and instance type of a limit."""
    org, zone, instance_type = key.split("/", 2)
    return org, zone, instance_type


def path_text(path: PoolPath) -> str:
    """Return the identity as one text: a CloudEvent's `subject`, and the key of a NodePool."""
    return "/".join(path)


def as_pool_key(text: str) -> PoolKey | None:
    """Return the text as the key of a NodePool; None if it is the key of another object."""
    parts = text.split("/")
    if len(parts) != 3 or parts[0] == FLEET or UNNAMED in parts:
        return None
    return PoolKey(text)


def pod_name(namespace: str, name: str) -> str:
    """Return the name of a Pod of a Kubernetes cluster as messages write it: with its namespace."""
    return f"{namespace}/{name}"


def pod_parts(name: str) -> tuple[str, str]:
    """Return the namespace and the name of the Pod that has this name in messages."""
    namespace, _, rest = name.partition("/")
    return namespace, rest


def node_profile(instance_type: str, image: str) -> str:
    """Return the node configuration of an instance type with an image."""
    return f"{instance_type}/{image}"
