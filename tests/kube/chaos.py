"""The parts of a cluster and of the control plane killed at random, drawn from a seed."""

import threading
from collections.abc import Callable
from random import Random

from testbed.agent import Agent
from testbed.cluster import Cluster
from testbed.components import API_SERVER, ETCD
from testbed.paused import pause_process
from testbed.plane import Plane

Fault = Callable[[], None]


class Chaos:
    """Kills agents, the API server, etcd and the bus, in a thread of its own, until it ends.

    counts: how often each kind of fault happened.
    """

    def __init__(
        self, seed: int, cluster: Cluster, plane: Plane, agents: tuple[Agent, ...]
    ) -> None:
        self.counts: dict[str, int] = {}
        self._random = Random(seed)
        self._cluster, self._plane, self._agents = cluster, plane, agents
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> "Chaos":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "each fault ends by itself"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        faults: tuple[tuple[Fault, int], ...] = (
            (self._kill_leader, 8),
            (self._kill_any, 3),
            (self._stop_agent, 2),
            (self._restart_bus, 2),
            (self._kill_service, 2),
            (self._restart_api_server, 2),
            (self._freeze_api_server, 1),
            (self._restart_etcd, 1),
        )
        try:
            while not self._ended.wait(self._random.uniform(0.2, 4)):
                (fault,) = self._random.choices(
                    [each for each, _ in faults], [weight for _, weight in faults]
                )
                name = fault.__name__.strip("_")
                self.counts[name] = self.counts.get(name, 0) + 1
                fault()
        except BaseException as error:  # The test shows it where the storm ends.
            self._error = error

    def _again(self, agent: Agent) -> None:
        agent.kill()
        self._ended.wait(self._random.uniform(0, 2))
        agent.start()

    def _kill_leader(self) -> None:
        for agent in self._agents:
            try:
                if agent.is_leading():
                    return self._again(agent)
            except OSError:
                continue  # It has no page yet.
        return None

    def _kill_any(self) -> None:
        self._again(self._random.choice(self._agents))

    def _stop_agent(self) -> None:
        """Longer than its Lease lasts, at times."""
        agent = self._random.choice(self._agents)
        with pause_process(agent.pid):
            self._ended.wait(self._random.uniform(1, 18))

    def _restart_bus(self) -> None:
        self._plane.processes.kill_server()

    def _kill_service(self) -> None:
        self._plane.processes.kill(self._random.choice(self._plane.processes.names))

    def _restart_api_server(self) -> None:
        self._cluster.kill(API_SERVER)
        self._cluster.start(API_SERVER)

    def _freeze_api_server(self) -> None:
        with pause_process(self._cluster.parts[API_SERVER].pid):
            self._ended.wait(self._random.uniform(1, 8))

    def _restart_etcd(self) -> None:
        self._cluster.kill(ETCD)
        self._cluster.start(ETCD)
