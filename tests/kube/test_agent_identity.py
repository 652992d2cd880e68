"""Two clusters of Kubernetes under one name: the second one is kept from the place of the first."""

import json
import shlex
from pathlib import Path

import pytest

from kube.audit import AuditLog
from kube.node_pools import works
from nodepool.cli.app import run
from nodepool.contract.commands import RegisterCluster
from testbed.agent import USER, Agent
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.plane import CLUSTER, ORG, ZONE, start_plane

ANOTHER = "5c1f7a52-7b0b-4f5e-9a52-0d6d7c1c7b11"


def test_an_agent_does_nothing_where_its_cluster_is_another_one_until_it_takes_its_place(
    cluster: Cluster, account: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uid = cluster.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
    with start_plane(tmp_path) as plane:
        # given a bus on which another Kubernetes has the name of this cluster, and a NodePool
        first = RegisterCluster(
            org=ORG, cluster=CLUSTER, zone=ZONE, kubernetes=True, kubernetes_uid=ANOTHER
        )
        plane.do(lambda client: client.commands.send(first))
        plane.apply("of-another", instanceType="gd-8xh100ib-i128", targetNodes=0)
        audit = AuditLog(cluster.folder)

        with Agent(tmp_path, account, plane.url) as agent:
            # when its agent comes
            wait_until("it is refused", lambda: ANOTHER in agent.obstacle(), WITHIN_S)

            # then it says what to do, and has changed nothing but its Lease
            line = agent.obstacle().partition("gone for good: ")[2].removesuffix(" (Conflict)")
            assert line == (
                f"nodepool register cluster {CLUSTER} --zone {ZONE} --kubernetes-uid {uid}"
                f" --replaces {ANOTHER} --org {ORG}"
            )
            sent = {(each.verb, each.resource) for each in audit.requests(USER)}
            changes = {each for each in sent if each[0] not in ("get", "list", "watch")}
            assert changes <= {("create", "leases"), ("update", "leases")}

            # and is not taken for an agent that is at work
            capsys.readouterr()
            assert run(["--url", plane.url, "doctor", "-o", "json"]) == 1
            checks = json.loads(capsys.readouterr().out)["checks"]
            found = [each["status"] for each in checks if each["check"].startswith("agent ")]
            assert found == ["problem"]

            # and once that is done it works
            assert run(["--url", plane.url, *shlex.split(line)[1:]]) == 0
            agent.wait_until_ready()
            works(cluster, "identified")
            plane.do(lambda client: client.nodepools.delete("of-another"))
            cluster.kubectl("wait", "nodepool/of-another", "--for=delete", "--timeout=60s")
