"""All services in one thread, a cluster of Kubernetes in memory, and the agent between them."""

from dataclasses import replace

from agent.actions import Action, Report, Send
from agent.bus import Attempt, Reported
from agent.node_documents import wanted_node
from agent.nodes import NodeView, missing_for_node
from agent.place import Place
from nodepool.contract.events import NodeReported
from nodepool.contract.keys import node_key
from nodepool.contract.log import LogId
from nodepool.contract.messages import Event
from support.constants import CLUSTER, ORG, ZONE
from support.documents import Document
from support.memory_cluster import Conflict, MemoryCluster
from support.paths import cluster_path
from support.publishing import publish
from support.world_harness import WorldHarness

ROUNDS_MAX = 60
"""The most comparisons until nothing new happens."""


class Killed(Exception):
    """The agent was killed before an action."""


class AgentWorld(WorldHarness):
    """A `WorldHarness` with a cluster that has an agent; kubelets register what has booted.

    cluster: the cluster.
    kill_before: the number of the action before which the agent is killed once; 0 for never.
    done: how many actions were carried out.
    """

    def __init__(self, kill_before: int = 0) -> None:
        super().__init__()
        self.cluster = MemoryCluster()
        self.kill_before = kill_before
        self.done = 0
        self.reported: dict[str, Reported] = {}
        self.attempts: dict[str, Attempt] = {}

    def given_cluster(self, cluster: str = CLUSTER, org: str = ORG, zone: str = ZONE) -> None:
        content = {"zone": zone, "kubernetes": True}
        self._send_accepted("RegisterCluster", cluster_path(org, cluster), content)

    def settle(self) -> None:
        """The agent compares every Node until nothing changes on either side."""
        for _ in range(ROUNDS_MAX):
            self.run_until_idle()
            self._register_kubelets()
            before = self._both_sides()
            try:
                for name in sorted({*self.cluster.nodes, *self._names()}):
                    self._compare(name)
            except Killed:
                self.reported, self.attempts = {}, {}
                continue
            self.run_until_idle()
            if before == self._both_sides():
                return
        raise AssertionError("the agent does not come to rest")

    def end_grace(self) -> None:
        """Every grace period ends."""
        self.cluster.pass_grace()
        self.settle()

    def _compare(self, name: str) -> None:
        document = self.document("nodes", node_key(ORG, CLUSTER, name))
        view = NodeView(
            wanted=None if document is None else wanted_node(document, name),
            found=self.cluster.node(name),
            pods=self.cluster.pods_of(name),
            reported=self.reported.get(name, Reported()),
            attempt=self._attempt(name),
        )
        place = Place(ORG, CLUSTER, ZONE)
        for action in missing_for_node(view, place, LogId("log"), self.world.log.clock):
            self.done += 1
            if self.done == self.kill_before:
                raise Killed
            try:
                self._carry_out(name, action)
            except Conflict:
                return

    def _carry_out(self, name: str, action: Action) -> None:
        self.cluster.carry_out(action)
        match action:
            case Report(event=event, drain=drain):
                assert isinstance(event, Event)
                publish(self.world, event)
                last = self.reported.get(name, Reported())
                if isinstance(event, NodeReported):
                    last = replace(last, node=event, drain=drain)
                else:
                    last = replace(last, conditions={**last.conditions, event.type: event})
                self.reported[name] = last
            case Send(id=id, command=command):
                content = command.model_dump(mode="json")
                self.send(type(command).__name__, command.path, content, id)
                self.attempts[name] = Attempt(id)

    def _attempt(self, name: str) -> Attempt | None:
        attempt = self.attempts.get(name)
        if attempt is None or not self.outcomes(attempt.id):
            return attempt
        outcome = self.outcomes(attempt.id)[-1]
        if outcome in ("done", "unchanged"):
            return replace(attempt, outcome="accepted", is_shown=True)
        return replace(attempt, outcome="refused", is_shown=True, message=outcome)

    def _register_kubelets(self) -> None:
        for name in self._names():
            document = self.document("nodes", node_key(ORG, CLUSTER, name))
            assert document is not None
            if name not in self.cluster.nodes and not wanted_node(document, name).registered:
                self.cluster.add_node(name)

    def _names(self) -> list[str]:
        return [key.rpartition("/")[2] for key in self.documents("nodes")]

    def _both_sides(self) -> tuple[str, str, int, dict[str, Document]]:
        found = (repr(self.cluster.nodes), repr(self.cluster.pods), len(self.cluster.told))
        return (*found, dict(self.documents("nodes")))
