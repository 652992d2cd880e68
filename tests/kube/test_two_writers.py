"""People in the cluster and commands on the bus write one NodePool, whatever is away meanwhile."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kube.audit import AuditLog
from kube.node_pools import manifest
from kube.proxy import Proxy
from kube.shell import Shell
from testbed.agent import Agent, is_served
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.kubelets import Kubelets
from testbed.plane import Plane


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a NodePool, an agent between them, and the networks that lead there.

    api, bus: what the agent reaches the API server and the bus through.
    """

    shell: Shell
    cluster: Cluster
    plane: Plane
    agent: Agent
    api: Proxy
    bus: Proxy

    def apply(self, name: str, target: int) -> None:
        """Applies a NodePool with kubectl."""
        printed = self.shell.run("kubectl apply -f -", manifest(name, target))
        assert printed.code == 0, printed.error

    def patch(self, name: str, spec: str) -> None:
        """Changes a NodePool with kubectl."""
        printed = self.shell.run(
            f"kubectl patch nodepool {name} --type merge -p '{{\"spec\": {spec}}}'"
        )
        assert printed.code == 0, printed.error

    def delete(self, name: str) -> None:
        """Deletes a NodePool with kubectl where there is one, and waits until both sides have."""
        line = f"kubectl delete nodepool {name} --ignore-not-found --wait=false"
        printed = self.shell.run(line)
        assert printed.code == 0, printed.error
        self.wait_for_targets(name, "")

    def scale(self, name: str, target: int) -> None:
        """Scales a NodePool with a command on the bus."""
        self.plane.do(lambda client: client.nodepools.scale(name, target))

    def targets(self, name: str) -> tuple[str, str]:
        """The target in the cluster and the one on the bus; empty where it is not."""
        path = "jsonpath={.spec.targetNodes}"
        line = f"kubectl get nodepool {name} --ignore-not-found -o {path}"
        on_bus = self.plane.target(name)
        return self.shell.run(line).out, "" if on_bus is None else str(on_bus)

    def wait_for_targets(self, name: str, expected: str) -> None:
        """Returns once both sides have this target; "" where both have no such NodePool."""
        try:
            wait_until(
                f"both sides of {name} have {expected or 'nothing'}",
                lambda: self.targets(name) == (expected, expected),
                WITHIN_S,
            )
        except TimeoutError as late:
            late.add_note(self.describe(name))
            raise

    def describe(self, name: str) -> str:
        """Return what both sides and the agent show of a NodePool, for a person to read."""
        line = f"kubectl get nodepool {name} --ignore-not-found -o json"
        return (
            f"targets in the cluster and on the bus: {self.targets(name)}\n"
            f"object: {self.shell.run(line).out}\n"
            f"refusals: {self.refusals(name)}\n"
            f"agent: obstacle {self.agent.obstacle()!r}, leads {self.agent.is_leading()}"
        )

    def wait_until_agreed(self, name: str) -> None:
        """Returns once the object says that the bus has it as it is now."""
        line = f"kubectl wait --for=condition=Validated nodepool/{name} --timeout={WITHIN_S:.0f}s"
        printed = self.shell.run(line)
        assert printed.code == 0, printed.error

    def refusals(self, name: str) -> list[str]:
        """The messages that tell people in the cluster that a wish of theirs was not taken."""
        line = (
            f"kubectl get events --field-selector involvedObject.name={name},"
            "reason=CWNodePoolNodesRequestFailed -o jsonpath='{range .items[*]}{.message}{\"\\n\"}'"
        )
        return [row for row in self.shell.run(line).out.splitlines() if row]

    def version(self, name: str) -> str:
        """The resourceVersion of the object."""
        line = f"kubectl get nodepool {name} -o jsonpath={{.metadata.resourceVersion}}"
        return self.shell.run(line).out


@pytest.fixture(scope="module")
def sides(
    cluster: Cluster,
    plane: Plane,
    kubelets: Kubelets,
    account: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Sides]:
    """An agent that reaches both sides through networks of its own."""
    token = re.findall(r'token: "(\S+)"', account.read_text())[0]
    with ExitStack() as stack:
        api = stack.enter_context(Proxy(cluster.port))
        bus = stack.enter_context(Proxy(int(plane.url.rpartition(":")[2])))
        connection = cluster.connect("agent-in-between", token, api.port)
        url = f"nats://127.0.0.1:{bus.port}"
        folder = tmp_path_factory.mktemp("agent")
        agent = stack.enter_context(Agent(folder, connection, url))
        yield Sides(Shell(cluster), cluster, plane, agent, api, bus)
        assert agent.errors() == ""


@pytest.fixture
def pool(sides: Sides, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a NodePool that both sides have, with one Node."""
    words = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_")).strip("-")
    name = f"{words[:20].rstrip('-')}-{words[-12:].lstrip('-')}"
    sides.apply(name, 1)
    sides.wait_for_targets(name, "1")
    sides.wait_until_agreed(name)
    yield name
    # Where a test has failed it may have left either side away.
    sides.api.mend()
    sides.bus.mend()
    if not sides.agent.is_running():
        sides.agent.start()
    sides.delete(name)


def test_different_fields_changed_at_once_are_both_kept(sides: Sides, pool: str) -> None:
    sides.agent.stop()
    sides.patch(pool, '{"nodeLabels": {"team": "research"}}')
    sides.scale(pool, 2)

    sides.agent.start()

    sides.wait_for_targets(pool, "2")

    def labels() -> object:
        found = sides.plane.pool(pool)
        spec = found["spec"] if found is not None else None
        return spec.get("nodeLabels") if isinstance(spec, dict) else None

    wait_until("the bus has the label", lambda: labels() == {"team": "research"}, WITHIN_S)
    assert sides.targets(pool) == ("2", "2")
    assert sides.refusals(pool) == []


def test_of_one_field_the_log_decides_and_the_loser_is_told(sides: Sides, pool: str) -> None:
    sides.agent.stop()
    sides.patch(pool, '{"targetNodes": 3}')
    sides.scale(pool, 2)

    sides.agent.start()

    sides.wait_for_targets(pool, "2")
    wait_until("it is told", lambda: len(sides.refusals(pool)) == 1, WITHIN_S)
    (message,) = sides.refusals(pool)
    assert {"targetNodes", "3", "2"} <= {*re.findall(r"\w+", message)}, message


def test_the_same_wish_from_both_is_one(sides: Sides, pool: str) -> None:
    sides.agent.stop()
    sides.patch(pool, '{"targetNodes": 2}')
    sides.scale(pool, 2)

    sides.agent.start()

    sides.wait_for_targets(pool, "2")
    # Before that, another change in the cluster would be one beside that of the bus.
    sides.wait_until_agreed(pool)
    sides.patch(pool, '{"targetNodes": 3}')
    sides.wait_for_targets(pool, "3")
    assert sides.refusals(pool) == []


def test_an_agent_that_is_killed_goes_on_where_it_was(sides: Sides, pool: str) -> None:
    sides.agent.kill()
    sides.patch(pool, '{"targetNodes": 2}')

    sides.agent.start()

    sides.wait_for_targets(pool, "2")


@pytest.mark.parametrize("how", ["cut", "freeze"])
def test_a_partition_of_the_api_server_loses_nothing(sides: Sides, pool: str, how: str) -> None:
    sides.api.cut() if how == "cut" else sides.api.freeze()
    sides.patch(pool, '{"nodeLabels": {"team": "research"}}')
    sides.scale(pool, 2)
    wait_until("the agent says so", lambda: bool(sides.agent.obstacle()), WITHIN_S)

    sides.api.mend()

    sides.wait_for_targets(pool, "2")
    wait_until("the agent is ready", lambda: not sides.agent.obstacle(), WITHIN_S)
    assert sides.refusals(pool) == []


def test_a_partition_of_the_bus_loses_nothing(sides: Sides, pool: str) -> None:
    sides.bus.cut()
    sides.patch(pool, '{"targetNodes": 2}')
    wait_until("the agent says so", lambda: bool(sides.agent.obstacle()), WITHIN_S)

    sides.bus.mend()

    sides.wait_for_targets(pool, "2")
    wait_until("the agent is ready", lambda: not sides.agent.obstacle(), WITHIN_S)


def test_a_nodepool_deleted_while_the_bus_is_away_goes_once_it_is_back(
    sides: Sides, pool: str
) -> None:
    sides.bus.cut()
    assert sides.shell.run(f"kubectl delete nodepool {pool} --wait=false").code == 0
    assert sides.targets(pool) == ("1", "1"), "its finalizer holds it"

    sides.bus.mend()

    sides.wait_for_targets(pool, "")


def test_a_nodepool_deleted_on_the_bus_goes_once_the_api_server_is_back(
    sides: Sides, pool: str
) -> None:
    sides.api.cut()
    sides.plane.do(lambda client: client.nodepools.delete(pool))

    sides.api.mend()

    sides.wait_for_targets(pool, "")


def test_a_cluster_restored_from_an_old_backup_is_as_the_bus_has_it(
    sides: Sides, pool: str
) -> None:
    # given a backup, and what has changed since
    sides.apply("deleted-since", 0)
    sides.wait_for_targets("deleted-since", "0")
    sides.wait_until_agreed("deleted-since")
    snapshot = sides.cluster.snapshot("backup-of-two-writers")
    sides.delete("deleted-since")
    sides.apply("created-since", 0)
    sides.wait_for_targets("created-since", "0")
    sides.patch(pool, '{"targetNodes": 2}')
    sides.wait_for_targets(pool, "2")

    # when the cluster goes back to it
    sides.cluster.restore(snapshot)
    # The part of it that runs mutating policies learns of the kind some time later.
    wait_until("NodePools can be created", lambda: is_served(sides.cluster), WITHIN_S)

    # then all of it comes back as the bus has it
    sides.wait_for_targets(pool, "2")
    sides.wait_for_targets("created-since", "0")
    sides.wait_for_targets("deleted-since", "")
    sides.delete("created-since")
    assert sides.refusals(pool) == []


def test_two_agents_at_once_do_no_harm(sides: Sides, pool: str, tmp_path: Path) -> None:
    # given another agent that takes no turns with the first, which its account would not allow
    connection, url = sides.cluster.kubeconfig, sides.plane.url
    with Agent(tmp_path, connection, url, lease="another", name="another") as other:
        other.wait_until_ready()
        wait_until("both lead", lambda: sides.agent.is_leading() and other.is_leading(), WITHIN_S)
        for target in (2, 3):
            sides.patch(pool, f'{{"targetNodes": {target}}}')
            sides.wait_for_targets(pool, str(target))
            sides.scale(pool, target - 1)
            sides.wait_for_targets(pool, str(target - 1))
        line = f"kubectl wait --for=condition=AtTarget nodepool/{pool} --timeout=60s"
        assert sides.shell.run(line).code == 0

        # then it comes to rest: nothing more is written of it, while another is worked on
        def rests() -> bool:
            log, version = AuditLog(sides.cluster.folder), sides.version(pool)
            sides.apply("worked-on", 0)
            sides.wait_for_targets("worked-on", "0")
            sides.delete("worked-on")
            written = [each for each in log.requests() if (each.verb, each.name) == ("patch", pool)]
            return (sides.version(pool), written) == (version, [])

        # The second may still write what the first has just written.
        wait_until("nothing more is written", rests, WITHIN_S)
        assert sides.refusals(pool) == []
    assert other.errors() == ""
