"""The agent as processes: taking turns, and every part around it lost and found again."""

import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kube.audit import AuditLog
from kube.front import Front
from kube.node_pools import a_pool, apply, is_validated, works
from testbed.agent import ACCOUNT, NAMESPACE, USER, Agent, agent_at_work, is_served
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.components import API_SERVER
from testbed.plane import Plane, start_plane

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
CHANGED = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "it has changed"}
ZERO = '{"spec": {"targetNodes": 0}}'
BUSY = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "try later"}


@pytest.fixture
def two(account: Path, plane: Plane, tmp_path: Path) -> Iterator[tuple[Agent, Agent]]:
    """Two replicas of one agent, the first of which leads."""
    with (
        agent_at_work(tmp_path, account, plane.url, name="one") as first,
        Agent(tmp_path, account, plane.url, name="two") as second,
    ):
        second.wait_until_ready()
        yield first, second


def holder_of_lease(cluster: Cluster) -> str:
    """Return the replica that holds the Lease of the agent; empty where it was released."""
    path = "jsonpath={.spec.holderIdentity}"
    return cluster.kubectl("get", "lease", ACCOUNT, "-n", NAMESPACE, "-o", path)


def test_of_two_replicas_one_acts_and_the_other_stands_by_ready(
    cluster: Cluster, two: tuple[Agent, Agent]
) -> None:
    first, second = two

    works(cluster, "host-turns")

    assert [each.is_leading() for each in two] == [True, False]
    assert [each.obstacle() for each in two] == ["", ""]
    assert second.metric("nodepool_agent_requests_total", verb="list") == 0
    assert first.metric("nodepool_agent_requests_total", verb="list") >= 3


def test_a_replica_that_is_told_to_stop_hands_over_at_once(
    cluster: Cluster, two: tuple[Agent, Agent]
) -> None:
    first, second = two
    holder = holder_of_lease(cluster)

    code = first.stop()

    # The other replica takes a released Lease at its next turn, and does not wait for its end.
    assert holder_of_lease(cluster) != holder
    wait_until("the other one leads", second.is_leading, WITHIN_S)
    assert code == 0
    works(cluster, "host-stopped")


def test_a_replica_releases_a_lease_that_was_changed_while_it_stops(
    cluster: Cluster, account: Path, plane: Plane, tmp_path: Path
) -> None:
    with Front(cluster.port) as front:
        kubeconfig = front.kubeconfig(account, tmp_path / "kubeconfig")
        with agent_at_work(tmp_path, kubeconfig, plane.url) as agent:
            holder = holder_of_lease(cluster)
            # A renewal may come before the release, and get the first reply.
            front.reply("PUT", "/leases/", status="409 Conflict", body=CHANGED, times=2)

            agent.stop()

            assert holder_of_lease(cluster) != holder


def test_a_replica_that_is_killed_is_followed_by_the_other_one(
    cluster: Cluster, two: tuple[Agent, Agent]
) -> None:
    first, second = two
    with a_pool(cluster, "host-killed"):
        first.kill()
        # It is changed while none is at work, which the next one finds.
        apply(cluster, "host-killed", target=1)
        cluster.kubectl("patch", "nodepool", "host-killed", "--type=merge", "-p", ZERO)

        wait_until("the other one leads", second.is_leading, WITHIN_S)
        wait_until("it is validated", lambda: is_validated(cluster, "host-killed"), WITHIN_S)


def test_a_replica_that_loses_its_lease_stops_acting_and_stands_by(
    cluster: Cluster, two: tuple[Agent, Agent]
) -> None:
    first, second = two
    taken = json.dumps({"spec": {"holderIdentity": "a stranger", "leaseDurationSeconds": 4}})

    cluster.kubectl("patch", "lease", ACCOUNT, "-n", NAMESPACE, "--type=merge", "-p", taken)

    wait_until("it has stopped", lambda: bool(first.lines("lost the Lease")), WITHIN_S)
    wait_until("one leads again", lambda: first.is_leading() or second.is_leading(), WITHIN_S)
    works(cluster, "host-lost")


def test_every_list_is_paged_and_every_watch_has_bookmarks(
    cluster: Cluster, account: Path, plane: Plane, tmp_path: Path
) -> None:
    audit = AuditLog(cluster.folder)
    with agent_at_work(tmp_path, account, plane.url):
        works(cluster, "host-paged")

    sent = [each for each in audit.requests(USER) if each.verb in ("list", "watch")]
    lists = {each.resource: each.uri for each in sent if each.verb == "list"}
    watches = {each.resource: each.uri for each in sent if each.verb == "watch"}
    assert set(lists) == set(watches) == {"nodepools", "nodes", "pods"}
    assert [uri for uri in lists.values() if "limit=500" not in uri] == []
    assert [uri for uri in watches.values() if "allowWatchBookmarks=true" not in uri] == []


def test_a_watch_that_has_expired_is_begun_with_a_new_list(
    cluster: Cluster, account: Path, plane: Plane, tmp_path: Path
) -> None:
    with Front(cluster.port) as front:
        expired = front.reply(
            "/nodepools?watch=1", status="200 OK", body={"type": "ERROR", "object": GONE}
        )
        kubeconfig = front.kubeconfig(account, tmp_path / "kubeconfig")
        with agent_at_work(tmp_path, kubeconfig, plane.url):
            works(cluster, "host-expired")

        lists = [line for line, _ in front.requests if "/nodepools?limit=" in line]
        assert expired.times == 0
        assert len(lists) >= 2, "without it, one is enough"


def test_a_list_that_is_throttled_comes_after_the_pause_that_was_asked_for(
    cluster: Cluster, account: Path, plane: Plane, tmp_path: Path
) -> None:
    with Front(cluster.port) as front:
        placed = ("/pods?limit=", "Succeeded")
        front.reply(*placed, status="429 Too Many Requests", body=BUSY, times=2, retry_after_s=2)
        kubeconfig = front.kubeconfig(account, tmp_path / "kubeconfig")
        with agent_at_work(tmp_path, kubeconfig, plane.url):
            works(cluster, "host-throttled")

        times = [moment for line, moment in front.requests if all(t in line for t in placed)]
        pauses = [after - before for before, after in pairwise(times)]
        assert len(pauses) >= 2
        assert min(pauses[:2]) >= 2.0


def test_a_change_that_is_throttled_is_made_later(
    cluster: Cluster, account: Path, plane: Plane, tmp_path: Path
) -> None:
    with Front(cluster.port) as front:
        kubeconfig = front.kubeconfig(account, tmp_path / "kubeconfig")
        with agent_at_work(tmp_path, kubeconfig, plane.url) as agent:
            throttled = front.reply(
                "PATCH", "/nodepools/host-later", status="429 -", body=BUSY, retry_after_s=1
            )
            works(cluster, "host-later")

            assert throttled.times == 0
            causes = [line["cause"] for line in agent.lines("not done")]
            assert causes.count("try later") == 1


def test_an_api_server_that_is_restarted_is_found_again(
    cluster: Cluster, account: Path, plane: Plane, tmp_path: Path
) -> None:
    with agent_at_work(tmp_path, account, plane.url) as agent:
        cluster.kill(API_SERVER)
        wait_until("it says so", lambda: "no reply of the API server" in agent.obstacle(), WITHIN_S)
        cluster.start(API_SERVER)
        # The part of it that runs mutating policies learns of the kind some time later.
        wait_until("NodePools can be created", lambda: is_served(cluster), WITHIN_S)

        agent.wait_until_ready()
        works(cluster, "host-restarted")
        assert agent.is_running()


def test_a_bus_that_is_restarted_is_found_again(
    cluster: Cluster, account: Path, plane: Plane, tmp_path: Path
) -> None:
    with agent_at_work(tmp_path, account, plane.url) as agent:
        plane.processes.server.kill()
        try:
            wait_until("it says so", lambda: "nats" in agent.obstacle(), WITHIN_S)
            # It is changed in the cluster meanwhile.
            apply(cluster, "host-bus")
        finally:
            plane.processes.server.start()

        agent.wait_until_ready()
        wait_until("it is validated", lambda: is_validated(cluster, "host-bus"), WITHIN_S)
        cluster.kubectl("delete", "nodepool", "host-bus", "--timeout=60s")


def test_a_bus_with_a_log_of_its_own_is_taken_for_what_it_is(
    cluster: Cluster, account: Path, tmp_path: Path
) -> None:
    # given a NodePool that was agreed on with one log
    data = tmp_path / "plane"
    data.mkdir()
    with start_plane(data) as plane, agent_at_work(tmp_path, account, plane.url) as agent:
        apply(cluster, "host-log")
        wait_until("it is validated", lambda: is_validated(cluster, "host-log"), WITHIN_S)
        before = agreed_log(cluster, "host-log")

        # when the bus is made anew, with nothing in it
        server = plane.processes.server
        server.kill()
        shutil.rmtree(server.data_dir)
        server.start()

        # then the NodePool is created there, and none is deleted here
        wait_until("it is agreed anew", lambda: agreed_log(cluster, "host-log") != before, WITHIN_S)
        wait_until("it is on the bus", lambda: plane.pool("host-log") is not None, WITHIN_S)
        wait_until("it is validated", lambda: is_validated(cluster, "host-log"), WITHIN_S)
        agent.wait_until_ready()
        cluster.kubectl("delete", "nodepool", "host-log", "--timeout=60s")


def agreed_log(cluster: Cluster, name: str) -> str:
    """The log of the last agreement on a NodePool."""
    found = json.loads(cluster.kubectl("get", "nodepool", name, "-o", "json"))
    agreed = json.loads(found["metadata"]["annotations"]["compute.coreweave.com/agreed"])
    return str(agreed["log"])
