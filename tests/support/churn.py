"""A cell in which everything changes, and after each month nothing is there that was not before.

A month begins and ends with the same objects: an organisation with its cluster, its limits and its
NodePools, two of which wait all the time, and the machines. In between, NodePools are made under
new names and under an old one, organisations come and go, and machines fail and come back. So what
has grown since an earlier month is kept of something that is gone.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple, cast

from nodepool.contract.buckets import BUCKETS
from nodepool.contract.events import NodeReported, PodsWaitingReported
from nodepool.engine.snapshot import dump
from nodepool.engine.world import Host
from support.constants import A100, H100, ORG, ZONE
from support.paths import cluster_path, machine_path, org_path
from support.publishing import publish
from support.world_harness import WorldHarness

MACHINES: Final = 16
RECLAIMED: Final = 12
"""How many machines are reclaimed at a time: some of them are spot Nodes."""
EVICTING: Final = {"disableUnhealthyNodeEviction": False}


class Size(NamedTuple):
    """How much there is of something: its entries, and their bytes in the dump of a state."""

    entries: int = 0
    bytes: int = 0


class Churn:
    """The cell; the names of one month are as long as those of any other."""

    def __init__(self) -> None:
        self.world = world = WorldHarness()
        self.months = 0
        world.given_cluster()
        world.given_machines(MACHINES)
        world.given_quota(MACHINES)
        world.apply("train", 3, lifecycle=EVICTING)
        world.apply("cheap", 2, computeClass="spot", lifecycle=EVICTING)
        world.apply("auto", 0, autoscaling=True, minNodes=0, maxNodes=3)
        world.apply("over", 2 * MACHINES)
        world.given_quota(MACHINES, A100)
        world.apply("short", 2, A100)

    def month(self, pools: int = 1) -> None:
        """Let everything happen that a month brings, until shortly before the next one.

        pools: how many NodePools come and go under new names.
        """
        self.months += 1
        ends = _next_month(self.world.world.log.clock) - timedelta(hours=1)
        self._come_and_go()
        self._connect()
        for number in range(pools):
            self._use_a_pool(f"work-{self.months:03}-{number:03}")
        self._use_a_pool("again")
        self._follow_pods()
        self._relabel()
        self._preempt()
        self._ask_for_nodes()
        self._ask_in_vain()
        self._repair()
        self.world.pass_time(seconds=(ends - self.world.world.log.clock).total_seconds())

    def _come_and_go(self) -> None:
        """An organisation registers a cluster, uses it, and leaves nothing but the cluster."""
        world, org = self.world, f"guest-{self.months:03}"
        pool = f"{org}/own/small"
        world.given_cluster("own", org)
        world.given_quota(2, org=org)
        world.apply(pool, 3)
        self._wait(5)
        world.scale(pool, 1)
        self._wait(60)
        world.delete(pool)
        self._wait(60)
        world.send("DeleteQuota", org_path(org), {"zone": ZONE, "instanceType": H100})
        selections = [{"instanceType": H100, "count": 1}]
        world.send("FindCapacity", org_path(org), {"selections": selections})

    def _connect(self) -> None:
        """An agent connects a cluster, each month to another Kubernetes, and reports its Nodes."""
        world, uid, name = self.world, f"uid-{self.months:03}", f"kube-{self.months:03}"
        before = f"uid-{self.months - 1:03}" if self.months > 1 else ""
        content = {"zone": ZONE, "kubernetes": True, "kubernetesUid": uid, "replaces": before}
        world.send("RegisterCluster", cluster_path(ORG, "kube"), content)
        pool = f"{ORG}/kube/{name}"
        world.apply(pool, 0, autoscaling=True, minNodes=0, maxNodes=2)
        document = world.document("nodepools", pool)
        assert document is not None
        fields = {"org": ORG, "cluster": "kube", "pool": name}
        metadata = cast("dict[str, object]", document["metadata"])
        of_pool = {**fields, "uid": metadata["uid"], "generation": 1}
        for waiting in ({"gpus": 8, "count": 1},), ():
            said = PodsWaitingReported.model_validate({**of_pool, "waiting": waiting})
            publish(world.world, said)
            self._wait(5)
            self._report(fields)
            self._wait(30)
        world.delete(pool)
        self._wait(5)
        self._report(fields)
        self._wait(120)

    def _report(self, fields: Mapping[str, str]) -> None:
        """The agent reports each Node of the cluster as the bus wants it."""
        for key, document in self.world.documents("nodes").items():
            metadata, spec, status = (
                cast("dict[str, object]", document[part]) for part in ("metadata", "spec", "status")
            )
            if not key.startswith(f"{ORG}/kube/"):
                continue
            marks = {name: status[name] for name in ("assignment", "cordon", "lock")}
            found = {"node": metadata["name"], "zone": ZONE, "pods": (), **marks}
            is_cordoned = bool(spec.get("unschedulable", False))
            said = {**fields, **found, "unschedulable": is_cordoned}
            publish(self.world.world, NodeReported.model_validate(said))
        self.world.run_until_idle()

    def _use_a_pool(self, name: str) -> None:
        """A NodePool grows, waits for quota, shrinks, lends a Node, and is deleted.

        How long it has for a step differs from month to month.
        """
        world, minutes = self.world, self.months % 13
        world.apply(name, 4, lifecycle=EVICTING, nodeLabels={"month": name})
        self._wait(minutes)
        world.create_pod(name, "job", gpus=8)
        world.scale(name, 20)
        self._wait(30)
        for node in world.nodes(name)[:1]:
            world.lock(name, node)
            world.unlock(name, node)
        world.scale(name, 2)
        self._wait(minutes)
        world.delete_pod(name, "job")
        world.apply(name, 2, "unknown-type")
        self._wait(30)
        for node in world.nodes(name)[:1]:
            world.command_node("ReserveNode", name, node, reservedDesired="control-plane")
        world.delete(name)
        self._wait(120)
        others = {f"{name}-x": "unknown-type", f"{name}-y": A100}
        for other, kind in others.items():
            world.apply(other, 2, kind)
            self._wait(1)
        for other in others:
            world.delete(other)
            self._wait(30)

    def _follow_pods(self) -> None:
        """NodePools grow for Pods, and shrink after them: one that stays, and one that goes."""
        world, goes = self.world, f"auto-{self.months:03}"
        pod = f"pod-{self.months:03}"
        world.apply(goes, 0, autoscaling=True, minNodes=0, maxNodes=3)
        for name in ("auto", goes):
            world.create_pod(name, pod, gpus=8)
            self._wait(20)
            world.delete_pod(name, pod)
            self._wait(60)
        world.delete(goes)
        self._wait(60)

    def _relabel(self) -> None:
        """The template of a NodePool changes, and its Nodes are replaced one after the other."""
        labels = {f"label-{number:02}": f"month-{self.months:03}" for number in range(20)}
        taint = {"key": "month", "value": f"{self.months:03}", "effect": "NoSchedule"}
        self.world.apply("train", 3, lifecycle=EVICTING, nodeLabels=labels, nodeTaints=[taint])
        self._wait(30)

    def _preempt(self) -> None:
        """Spot Nodes are preempted, by command and for machines that are reclaimed."""
        world = self.world
        for node in world.nodes("cheap")[:1]:
            world.preempt("cheap", node)
        self._wait(30)
        world.reclaim(RECLAIMED)
        self._wait(30)
        world.give_back(RECLAIMED)
        self._wait(60)

    def _ask_for_nodes(self) -> None:
        """Nodes are cordoned, rebooted, drained, reserved and broken, and all come back."""
        world = self.world
        for command in ("CordonNode", "UncordonNode", "RebootNode", "DrainNode"):
            for node in world.nodes("train")[:1]:
                world.command_node(command, "train", node)
                self._wait(30)
        for node in world.nodes("train")[1:2]:
            for owner in ("control-plane", ORG):
                world.command_node("ReserveNode", "train", node, reservedDesired=owner)
                self._wait(30)
        for fault in ("boot", "registration", "hang", "xid"):
            for node in world.nodes("train")[:1]:
                world.break_machines(node, fault=fault)
                self._wait(300)

    def _ask_in_vain(self) -> None:
        """What is refused leaves nothing but an outcome."""
        world, name = self.world, f"none-{self.months:03}"
        world.scale(name, 3)
        world.delete(name)
        world.send("ApplyNodePool", (ORG, "nowhere", name), {"spec": {}})
        world.publish(f"np.cmd.{ORG}.prod.{name}.ApplyNodePool", b"{")
        world.publish(f"np.cmd.{name}.own.pool.ScaleNodePool", b'{"data": {"targetNodes": 1}}')

    def _repair(self) -> None:
        """Every machine that has failed works again."""
        for key in self.world.documents("machines"):
            self.world.send("BreakMachine", machine_path(key), {"fault": "boot", "times": 0})
            self.world.send("RepairMachine", machine_path(key), {})

    def _wait(self, minutes: float) -> None:
        self.world.pass_time(minutes=minutes)

    def sizes(self) -> Mapping[str, Size]:
        """Return the size of each field of the states, of each bucket, and of each metric."""
        world, sizes = self.world.world, dict[str, Size]()
        world.run_until_idle()
        for host in world.hosts:
            world.process(host, even_if_quiet=True)  # As an idle service does now and then.
            for name, size in _parts(host):
                before = sizes.get(name, Size())
                sizes[name] = Size(before.entries + 1, before.bytes + size)
        for bucket in BUCKETS:
            sizes[f"the bucket {bucket}"] = Size(len(self.world.documents(bucket)))
        return sizes


def _parts(host: Host) -> Iterator[tuple[str, int]]:
    """Yield each line of the state and the receipts, and each series of the metrics."""
    name = host.service.name
    for line in dump(host.replica.safe):
        yield f"{name} {json.loads(line)[0]}", len(line)
    for metric, _, _ in host.service.samples(host.replica.state):
        yield f"{name} {metric.name}", 0


def _next_month(now: datetime) -> datetime:
    """Return when the next month of the calendar begins."""
    later = now.replace(day=28) + timedelta(days=4)
    return later.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
