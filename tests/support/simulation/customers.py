"""What customers do: they apply, scale and delete NodePools, preempt Nodes and get quotas."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from nodepool.contract.keys import PoolPath
from nodepool.contract.model import NodePhase
from support.audit.facts import Facts, Ledger, Pool, Stay
from support.constants import A100, H100, WEST, ZONE
from support.manifests import rack_affinity
from support.paths import cluster_path, org_path, pool_path
from support.simulation.batches import Batches, affinity_with, spec_of
from support.simulation.machines import Machines
from support.simulation.profile import Profile
from support.simulation.racks import RACK_TYPE, RACK_ZONE
from support.simulation.sender import Sender

CLUSTERS: Mapping[tuple[str, str], str] = {
    ("acme", "prod"): ZONE,
    ("acme", "lab"): ZONE,
    ("acme", "west"): WEST,
    ("umbrella", "prod"): ZONE,
}
"""The zone of each cluster, by organisation and name."""
RACK_CLUSTER: Mapping[tuple[str, str], str] = {("acme", "racks"): RACK_ZONE}
"""A cluster in a zone where machines come in racks."""
MISSPELT = ("gd-8xh100-ib-i128", "h100", "a b", "a..b", "a/b")
"""Instance types that do not exist; some of them are refused, as no label can hold them."""
MANAGED_TAINTS = (
    {"key": "is_gpu", "value": "yes", "effect": "PreferNoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    {"key": "team", "value": "red", "effect": "NoSchedule"},
)
"""Taints that a NodePool may list, two of which the control plane sets itself."""
IMAGES: tuple[dict[str, str], ...] = (
    {},
    {"name": "ubuntu"},
    {"kernel": "6.8"},
    {"name": "ubuntu", "kernel": "6.8", "releaseTrain": "latest"},
)
"""Images that Nodes may boot with, the default one first."""
IN_THE_FUTURE = 1_000_000
LEDGERS: tuple[Ledger, ...] = (
    ("acme", ZONE, H100),
    ("umbrella", ZONE, H100),
    ("acme", WEST, H100),
    ("acme", ZONE, A100),
    ("umbrella", ZONE, A100),
)
"""What limits are set for; the last one has none at first."""


@dataclass
class Customers:
    """Two organisations with four clusters.

    facts: what is known from the log, to choose among the NodePools and Nodes that exist.
    """

    random: Random
    facts: Facts
    sender: Sender
    machines: Machines
    profile: Profile

    def __post_init__(self) -> None:
        self.batches = Batches(self.random, self.facts, self.sender, self.profile)
        self._clusters = {**CLUSTERS, **(RACK_CLUSTER if self.profile.racks else {})}

    def register_clusters(self) -> None:
        """Registers every cluster."""
        for (org, cluster), zone in self._clusters.items():
            self.sender.send("RegisterCluster", cluster_path(org, cluster), {"zone": zone})

    def set_first_limits(self) -> None:
        """Sets a limit for every ledger but the last."""
        for ledger in LEDGERS[:-1]:
            self._set_limit(ledger, self.random.choice(self.profile.limits))
        if self.profile.racks:
            self._set_limit(
                ("acme", RACK_ZONE, RACK_TYPE), self.random.choice(self.profile.rack_limits)
            )

    def some_path(self) -> PoolPath:
        """The path of a NodePool: often one that exists."""
        keys = list(self.facts.uids)
        if keys and self.random.random() < 0.85:
            return pool_path(self.random.choice(keys))
        org, cluster = self.random.choice(list(self._clusters))
        return (
            org,
            cluster,
            f"p{self.random.randrange(3)}" if self.random.random() < 0.75 else "typo",
        )

    def apply_first(self) -> None:
        """Creates some NodePools in each cluster."""
        for org, cluster in self._clusters:
            for name in ("p0", "p1"):
                if self.random.random() < 0.7:
                    path = org, cluster, name
                    content = {"metadata": {"name": name}, "spec": self._new_spec(path)}
                    self.sender.send("ApplyNodePool", path, content)

    def apply(self) -> None:
        """Creates a NodePool, or changes one."""
        path = self.some_path()
        metadata: dict[str, object] = {"name": path[2]}
        if self.random.random() < 0.1:
            metadata["resourceVersion"] = self._some_version()
        if self.random.random() < 0.2:
            metadata["labels"] = {"team": self.random.choice(("red", "blue"))}
        pool = self.facts.pool("/".join(path))
        is_change = pool is not None and self.random.random() < 0.6
        spec = spec_of(pool) if pool and is_change else self._new_spec(path)
        for name, value in self._changes().items():
            if self.random.random() < 0.25:
                spec[name] = value
        if self.profile.images:
            spec["image"] = IMAGES[len(self.sender.sent) % len(IMAGES)]
        self.sender.send("ApplyNodePool", path, {"metadata": metadata, "spec": spec})

    def _new_spec(self, path: PoolPath) -> dict[str, object]:
        """A spec by the name of its NodePool, so that most later changes of it are allowed."""
        _, cluster, name = path
        if cluster == "racks":
            target = self.random.choice((18, 36, 36, 0, 5))
            return {"targetNodes": target, "instanceType": RACK_TYPE}
        kinds: Mapping[str, dict[str, object]] = {
            "p0": {"instanceType": H100},
            "p1": {"instanceType": H100, "computeClass": "spot"},
            "p2": {"instanceType": self.random.choice((H100, A100))},
            "typo": {"instanceType": self.random.choice(MISSPELT)},
        }
        target = self.random.choice(self.profile.targets)
        return {"targetNodes": target, **kinds.get(name, {"instanceType": H100})}

    def _changes(self) -> dict[str, object]:
        """New values for fields of a spec, of which each is taken or not."""
        strategy = self.random.choice(("IdleOnly", "PreferIdle"))
        return {
            "targetNodes": self.random.choice(self.profile.targets),
            "lifecycle": {"scaleDownStrategy": strategy},
            "nodeLabels": {"team": self.random.choice(("red", "blue"))},
            "nodeTaints": self.random.choice(([], [], [self.random.choice(MANAGED_TAINTS)])),
            "affinity": self._some_affinity(),
            "region": self.random.choice((None, None, None, None, "US-EAST-01A")),
            "schedulingPriority": {"value": self.random.choice((-1, 0, 0, 7))},
        }

    def _some_affinity(self) -> object:
        """None, one that some machines satisfy, or seldom one that none ever will."""
        bad = affinity_with(self.random.choice(("Exists", "Near")))
        good = rack_affinity(*self.random.choice((["r1"], ["r1", "r2"])))
        return self.random.choice((None, None, None, good, good, bad))

    def relabel(self) -> None:
        """Changes nothing but a label of a NodePool, be it one that waits."""
        pools = [pool for pool in self.facts.existing_pools() if pool.deleting_since is None]
        if pools:
            path = pool_path(self.random.choice(pools).key)
            pool = self.facts.pool("/".join(path))
            assert pool is not None
            label = {"asked": str(self.random.randrange(1000))}
            content = {"metadata": {"name": path[2], "labels": label}, "spec": spec_of(pool)}
            self.sender.send("ApplyNodePool", path, content)

    def retaint(self) -> None:
        """Has the Nodes of a NodePool bear another taint, be it one that they bear anyway."""
        pools = [pool for pool in self.facts.existing_pools() if pool.deleting_since is None]
        if pools:
            pool = self.random.choice(pools)
            path, spec = pool_path(pool.key), spec_of(pool)
            spec["nodeTaints"] = [self.random.choice(MANAGED_TAINTS)]
            content = {"metadata": {"name": path[2]}, "spec": spec}
            self.sender.send("ApplyNodePool", path, content)

    def scale(self) -> None:
        """Changes the target of a NodePool."""
        content: dict[str, object] = {"targetNodes": self.random.choice(self.profile.targets)}
        if self.random.random() < 0.1:
            content["resourceVersion"] = self._some_version()
        self.sender.send("ScaleNodePool", self.some_path(), content)

    def scale_down_and_up(self) -> None:
        """Shrinks a NodePool, grows and shrinks it again, with Pods coming and going meanwhile."""
        stay = self.machines.some_node()
        if stay is None:
            return
        path, held = pool_path(stay.pool.key), stay.pool.held
        for target in (held - 1, held, held - 1, held, held - 1):
            content = {"targetNodes": max(0, target)}
            self.sender.delayed.append(partial(self.sender.send, "ScaleNodePool", path, content))
            self.sender.delayed.append(partial(self._change_pods, stay.pool))

    def _change_pods(self, pool: Pool) -> None:
        for stay in self.facts.stays_in(pool):
            if stay.phase != NodePhase.BOOTING:
                self._change_pod(stay)

    def _change_pod(self, stay: Stay) -> None:
        if self.random.random() < 0.5:
            self.machines.run_pod_on(stay)
        else:
            self.machines.stop_pod_on(stay)

    def delete(self) -> None:
        """Deletes a NodePool."""
        self.sender.send("DeleteNodePool", self.some_path(), {})

    def change_limit(self) -> None:
        """Raises or lowers a limit."""
        self._set_limit(self.random.choice(LEDGERS), self.random.choice(self.profile.limits))

    def delete_limit(self) -> None:
        """Deletes a limit, whether or not it is set."""
        org, zone, instance_type = self.random.choice(LEDGERS)
        content = {"zone": zone, "instanceType": instance_type}
        self.sender.send("DeleteQuota", org_path(org), content)

    def _set_limit(self, ledger: Ledger, limit: int) -> None:
        org, zone, instance_type = ledger
        content = {"zone": zone, "instanceType": instance_type, "limit": limit}
        self.sender.send("SetQuota", org_path(org), content)

    def preempt(self) -> None:
        """Preempts a Node, seldom one that is not a spot Node."""
        is_booting = self.random.random() < 0.2
        stay = self.machines.some_node(is_spot=self.random.random() < 0.9, is_booting=is_booting)
        if stay is not None:
            content = {"node": stay.machine.rpartition("/")[2]}
            self.sender.send("PreemptNode", pool_path(stay.pool.key), content)

    def _some_version(self) -> str:
        newest = len(self.sender.log.entries)
        is_future = self.random.random() < 0.2
        return str(IN_THE_FUTURE if is_future else self.random.randrange(newest + 1))
