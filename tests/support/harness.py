"""Drives all services together: what is given, and the commands that are sent.

`WorldHarness` runs them in one thread over a log in memory, `LiveHarness` on a real server; a test
that takes a `Harness` runs on both.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from nodepool.contract.commands import MACHINES_MAX
from nodepool.contract.keys import PoolPath, token
from nodepool.contract.model import API_VERSION, KIND
from nodepool.service import AnyService
from support.constants import CLUSTER, H100, ORG, ZONE
from support.event_log import EventLog
from support.paths import cluster_path, org_path, pool_path, zone_path
from support.read_model import ReadModel
from support.services import services


class SentCommand(NamedTuple):
    """A command as it was published."""

    subject: str
    content: bytes


class Harness(EventLog, ReadModel):
    """Commands to all services, and what they lead to; each method waits until all are idle.

    sent: every command, by its id.
    """

    def __init__(self, services_: Sequence[AnyService] = ()) -> None:
        self.services = tuple(services_) or services()
        super().__init__(self.services)
        self.sent: dict[str, SentCommand] = {}
        self._is_waiting = True

    @abstractmethod
    def put(self, subject: str, content: bytes, id: str) -> None:
        """Stores a message and does not wait; `id` is its `Nats-Msg-Id`."""

    @abstractmethod
    def run_until_idle(self) -> None:
        """Returns once everything has happened that needs no time to pass."""

    @abstractmethod
    def pass_time(self, minutes: float = 0, seconds: float = 0) -> None:
        """Lets time pass; on a real server that takes as long."""

    @abstractmethod
    def replay_differs(self) -> list[str]:
        """The services for which a replay of the log leads to another state."""

    # Messages and commands of any content.

    def publish(self, subject: str, content: bytes, id: str = "") -> None:
        """Publishes any content on any subject."""
        self.put(subject, content, id)
        if self._is_waiting:
            self.run_until_idle()

    def send(self, name: str, path: PoolPath, content: Mapping[str, object], id: str = "") -> str:
        """Sends a command; its id."""
        id = id or f"c{len(self.sent) + 1}"
        subject = ".".join(("np.cmd", *map(token, path), name))
        envelope = {"specversion": "1.0", "id": id, "type": name, "source": "harness"}
        command = SentCommand(subject, json.dumps({**envelope, "data": content}).encode())
        self.sent[id] = command
        self.publish(command.subject, command.content, id)
        return id

    def resend(self, id: str) -> None:
        """Sends a command again, with the id in its content."""
        command = self.sent[id]
        self.publish(command.subject, command.content)

    def first_id(self, name: str) -> str:
        """The id of the first command of this name."""
        return next(id for id, command in self.sent.items() if command.subject.endswith(name))

    def _send_accepted(self, name: str, path: PoolPath, content: Mapping[str, object]) -> None:
        outcomes = self.outcomes(self.send(name, path, content))
        assert outcomes in ([], ["done"], ["created"], ["configured"]), f"{name}: {outcomes}"

    @contextmanager
    def sent_together(self) -> Iterator[None]:
        """Commands sent in here are all stored before a service processes the first."""
        self._is_waiting = False
        yield
        self._is_waiting = True
        self.run_until_idle()

    # Given.

    def given_cluster(self, cluster: str = CLUSTER, org: str = ORG, zone: str = ZONE) -> None:
        """Registers a cluster."""
        self._send_accepted("RegisterCluster", cluster_path(org, cluster), {"zone": zone})

    def given_machines(
        self,
        count: int,
        instance_type: str = H100,
        *,
        zone: str = ZONE,
        labels: Mapping[str, str] | None = None,
        boot_s: float = 0,
        **fields: float,
    ) -> None:
        """Adds free machines to a zone; `fields` are further fields of the command."""
        for added in range(0, count, MACHINES_MAX):
            content = {
                "instanceType": instance_type,
                "count": min(MACHINES_MAX, count - added),
                "labels": labels or {},
                "bootSeconds": boot_s,
                **fields,
            }
            self._send_accepted("AddMachines", zone_path(zone), content)

    def given_quota(
        self, limit: int, instance_type: str = H100, *, org: str = ORG, zone: str = ZONE
    ) -> None:
        """Sets or changes a limit."""
        content = {"zone": zone, "instanceType": instance_type, "limit": limit}
        self._send_accepted("SetQuota", org_path(org), content)

    def given_data_center(self, machines: int = 10, quota: int = 100, boot_s: float = 0) -> None:
        """A cluster, machines and a quota: what most tests begin with."""
        self.given_cluster()
        self.given_machines(machines, boot_s=boot_s)
        self.given_quota(quota)

    # Commands to NodePools.

    def apply(
        self,
        pool: str,
        target: int = 0,
        instance_type: str = H100,
        *,
        metadata: Mapping[str, object] | None = None,
        id: str = "",
        **spec: object,
    ) -> str:
        """Applies a manifest; `spec` holds further fields of its spec."""
        content = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": pool_path(pool)[2], **(metadata or {})},
            "spec": {"instanceType": instance_type, "targetNodes": target, **spec},
        }
        return self.send("ApplyNodePool", pool_path(pool), content, id)

    def grow(self, pool: str, target: int, *args: str, step: int = 1, **spec: object) -> None:
        """Applies a manifest with a few Nodes more each time, which are newer than those before."""
        for nodes in range(step, target + 1, step):
            self.apply(pool, nodes, *args, **spec)  # type: ignore[arg-type]  # Fields of a spec.

    def scale(self, pool: str, target: int) -> str:
        """Changes the target of a NodePool."""
        return self.send("ScaleNodePool", pool_path(pool), {"targetNodes": target})

    def delete(self, pool: str) -> str:
        """Deletes a NodePool."""
        return self.send("DeleteNodePool", pool_path(pool), {})

    def preempt(self, pool: str, node: str) -> str:
        """Preempts a spot Node."""
        return self.send("PreemptNode", pool_path(pool), {"node": self.machine_name(node)})

    def acknowledge(self, pool: str, node: str) -> str:
        """Ends the warning of a Node that is being preempted."""
        content = {"node": self.machine_name(node)}
        return self.send("AcknowledgePreemption", pool_path(pool), content)

    def command_node(self, name: str, pool: str, node: str, **fields: object) -> str:
        """Sends a command about a Node; `fields` are further fields of it."""
        return self.send(name, pool_path(pool), {"node": self.machine_name(node), **fields})

    def lock(self, pool: str, node: str, job: str = "42") -> str:
        """Takes the lock of a Node for a Slurm job, as its prolog does."""
        return self.command_node("LockNode", pool, node, job=job)

    def unlock(self, pool: str, node: str, job: str = "42") -> str:
        """Releases the lock of a Node, as the epilog of a Slurm job does."""
        return self.command_node("UnlockNode", pool, node, job=job)

    # Commands to machines.

    def reclaim(self, count: int, instance_type: str = H100, *, zone: str = ZONE) -> str:
        """Holds machines back."""
        content = {"instanceType": instance_type, "count": count}
        return self.send("ReclaimCapacity", zone_path(zone), content)

    def give_back(self, count: int, instance_type: str = H100, *, zone: str = ZONE) -> str:
        """Gives machines back that are held back."""
        content = {"instanceType": instance_type, "count": count}
        return self.send("ReturnCapacity", zone_path(zone), content)

    def run_pod(self, node: str, pod: str = "job", /, **fields: object) -> None:
        """Starts a Pod on a Node; `fields` are further fields of the Pod."""
        self._send_accepted("RunPod", self.machine_path(node), {"pod": {"name": pod, **fields}})

    def stop_pod(self, node: str, pod: str = "job") -> None:
        """Ends a Pod, as finished work does."""
        self._send_accepted("StopPod", self.machine_path(node), {"name": pod})

    def create_pod(self, pool: str, pod: str = "job", /, **fields: object) -> str:
        """Creates a Pod of a NodePool; `fields` are further fields of the Pod."""
        return self.send("CreatePod", pool_path(pool), {"pod": {"name": pod, **fields}})

    def delete_pod(self, pool: str, pod: str = "job", /, **fields: object) -> str:
        """Deletes a Pod of a NodePool; `fields` are further fields of the command."""
        return self.send("DeletePod", pool_path(pool), {"name": pod, **fields})

    def break_machines(self, *nodes: str, fault: str, times: int = 1, cause: str = "") -> None:
        """Makes machines fail the next times that they boot."""
        for node in nodes:
            content = {"fault": fault, "times": times, "cause": cause}
            self._send_accepted("BreakMachine", self.machine_path(node), content)

    def repair_machines(self, *nodes: str) -> None:
        """Returns machines from triage."""
        for node in nodes:
            self._send_accepted("RepairMachine", self.machine_path(node), {})
