"""All services in one thread, a cluster of Kubernetes in memory, and the agent between them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.actions import Action, Attempt, Delete, Evict, Place, Report, Send
from agent.nodes.missing import NodeView, missing_for_node
from agent.nodes.objects import Reported, wanted_node
from agent.nodes.record import read_record
from nodepool.contract.events import CWNodeDeleted, CWNodeRegistrationFailed, NodeReported
from nodepool.contract.keys import node_key
from nodepool.contract.log import LogId
from nodepool.contract.messages import Event
from support.constants import CLUSTER, ORG, ZONE
from support.documents import Document
from support.memory_cluster import Conflict, MemoryCluster, Refused
from support.paths import cluster_path
from support.publishing import publish
from support.world_harness import WorldHarness

if TYPE_CHECKING:
    from agent.nodes.objects import NodeObject

ROUNDS_MAX = 60
"""The most comparisons until nothing new happens."""


class Killed(Exception):
    """The agent was killed before an action."""


class AgentWorld(WorldHarness):
    """A `WorldHarness` with a cluster that has an agent; kubelets register what has booted.

    cluster: the cluster.
    kill_before: the number of the action before which the agent is killed once; 0 for never.
    done: how many actions were carried out.
    shows_nodes: whether the read model has any Node; not while it is built anew.
    log_id: which log the agent takes that of the services for.
    """

    def __init__(self, kill_before: int = 0) -> None:
        super().__init__()
        self.cluster = MemoryCluster()
        self.kill_before = kill_before
        self.done = 0
        self.shows_nodes = True
        self.log_id = LogId("log")
        self.last_seen: dict[str, NodeObject] = {}
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
                self.forget()
                continue
            self.run_until_idle()
            if before == self._both_sides():
                return
        raise AssertionError("the agent does not come to rest")

    @contextmanager
    def services_away(self) -> Iterator[None]:
        """What is sent in here is stored, and waits for the services."""
        self._is_waiting = False
        try:
            yield
        finally:
            self._is_waiting = True

    def compare(self, name: str) -> None:
        """The agent compares a Node once."""
        self._compare(name)

    def forget(self) -> None:
        """The agent is another process, which knows nothing of what the last one did."""
        self.reported, self.attempts, self.last_seen = {}, {}, {}
        self.cluster.proven.clear()

    def end_grace(self) -> None:
        """Every grace period ends."""
        self.cluster.pass_grace()
        self.settle()

    def _compare(self, name: str) -> None:
        document = self._read(name)
        view = NodeView(
            wanted=None if document is None else wanted_node(document, name),
            found=self.cluster.node(name),
            pods=self.cluster.pods_of(name),
            reported=self.reported.get(name, Reported()),
            attempt=self._attempt(name),
            is_gone=self._is_gone(name),
            proven=self.cluster.proven.get(name, ""),
            last_seen=self.last_seen.get(name),
        )
        self._remember(name)
        place = Place(ORG, CLUSTER, ZONE)
        is_refused = False
        for action in missing_for_node(view, place, self.log_id, self.world.log.clock):
            if is_refused and not _ends_pod(action):
                continue
            self.done += 1
            if self.done == self.kill_before:
                raise Killed
            try:
                self._carry_out(name, action)
            except Conflict:
                return
            except Refused:
                is_refused = True

    def _read(self, name: str) -> Document | None:
        return self.document("nodes", node_key(ORG, CLUSTER, name)) if self.shows_nodes else None

    def _is_gone(self, name: str) -> bool:
        """Whether the log says that the stay has ended which an object is of."""
        found = self.cluster.node(name)
        state = read_record(found) if found is not None else None
        if state is None or state.log != self.log_id:
            return False
        return any(
            isinstance(event := each.data, CWNodeDeleted | CWNodeRegistrationFailed)
            and (event.node, event.assignment) == (name, state.assignment)
            for each in self.envelopes()
        )

    def _remember(self, name: str) -> None:
        found = self.cluster.node(name)
        if found is not None:
            self.last_seen[name] = found

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
                self.attempts[name] = Attempt(id, command=command)

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
        cluster = self.cluster
        found = (repr((cluster.nodes, cluster.proven)), repr(cluster.pods))
        done = len(cluster.recorded) + len(self.sent)
        return (*found, done, dict(self.documents("nodes")))


def _ends_pod(action: Action) -> bool:
    return isinstance(action, Evict) or (isinstance(action, Delete) and action.kind == "Pod")
