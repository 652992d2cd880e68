"""What a real Kubernetes makes of the manifests: it takes them, and it schedules their Pods."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from kube.manifests import MONITORING, WHOLE, overlay
from nodepool.auth.accounts import GATEWAY
from nodepool.auth.folder import AuthFolder
from nodepool.auth.users import new_member
from nodepool.contract.services import SERVICES
from nodepool.local.secrets import ACCOUNTS, MEMBERS, secrets_text
from testbed.cluster import CACHE, WITHIN_S, Cluster, Document, wait_until

NAMESPACE = "nodepool"
PROGRAMS = (*SERVICES, GATEWAY)
ROLLOUT = "--timeout=60s"
ZONE = "topology.kubernetes.io/zone"
ZONES = ("a", "b", "c")
HOSTS_PER_ZONE = 2
SERVERS = 3

HOST = """\
apiVersion: v1
kind: Node
metadata:
  name: {name}
  annotations: {{kwok.x-k8s.io/node: fake}}
  labels: {{kubernetes.io/hostname: {name}, topology.kubernetes.io/zone: {zone}}}
status:
  allocatable: {{cpu: "8", memory: 16Gi, pods: "110"}}
  capacity: {{cpu: "8", memory: 16Gi, pods: "110"}}
"""
VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata: {{name: data-{number}}}
spec:
  capacity: {{storage: 20Gi}}
  accessModes: [ReadWriteOnce]
  hostPath: {{path: /data-{number}}}
"""
UNCONFINED = """\
apiVersion: v1
kind: Pod
metadata: {name: unconfined, namespace: nodepool}
spec:
  containers: [{name: only, image: nodepool}]
"""


def hosts() -> Iterator[str]:
    """The manifests of the cluster's hosts: some in each zone."""
    for zone in ZONES:
        for number in range(HOSTS_PER_ZONE):
            yield HOST.format(name=f"host-{zone}{number}", zone=zone)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> AuthFolder:
    """The identities of an installation, on the machine of an operator."""
    folder = AuthFolder(tmp_path_factory.mktemp("identities") / "auth")
    folder.init()
    return folder


def bring(cluster: Cluster, folder: AuthFolder) -> None:
    """Has the cluster hold the Secrets of the identities, as they are now."""
    apply = ("apply", "--server-side", "-f", "-")
    cluster.kubectl(*apply, given=secrets_text(folder, NAMESPACE))


@pytest.fixture(scope="module")
def installed(cluster: Cluster, identities: AuthFolder) -> Cluster:
    """A cluster with hosts and volumes, to which the manifests were applied as the page says."""
    cluster.kubectl("apply", "-f", f"{WHOLE}/namespace.yaml")
    bring(cluster, identities)
    volumes = (VOLUME.format(number=number) for number in range(SERVERS))
    cluster.kubectl("apply", "-f", "-", given="---\n".join((*hosts(), *volumes)))
    done = cluster.run("apply", "-k", WHOLE)
    assert (done.returncode, done.stderr) == (0, ""), "an error or a warning of the API server"
    return cluster


def pods(cluster: Cluster, selector: str = "") -> Sequence[Document]:
    return cluster.objects("pods", NAMESPACE, selector)


def rolled_out(cluster: Cluster) -> None:
    """Waits until each workload has all its Pods; raises where that takes too long."""
    for name in PROGRAMS:
        cluster.kubectl(
            "rollout", "status", f"deployment/nodepool-{name}", "-n", NAMESPACE, ROLLOUT
        )
    cluster.kubectl("rollout", "status", "statefulset/nats", "-n", NAMESPACE, ROLLOUT)


def test_every_pod_is_admitted_under_the_restricted_profile_and_runs(installed: Cluster) -> None:
    rolled_out(installed)

    running = Counter(
        item["metadata"]["labels"]["app.kubernetes.io/name"]
        for item in pods(installed)
        if item["status"]["phase"] == "Running"
    )
    assert running == {"nodepool": 2 * len(PROGRAMS), "nats": SERVERS}


def test_a_pod_with_more_rights_is_refused_beside_them(installed: Cluster) -> None:
    done = installed.run("apply", "-f", "-", given=UNCONFINED)

    assert done.returncode != 0
    assert 'violates PodSecurity "restricted:' in done.stderr


def test_replicas_run_on_different_hosts_and_in_different_zones(installed: Cluster) -> None:
    rolled_out(installed)
    # Nodes that other tests made may still be there, some without this label.
    zones = {
        item["metadata"]["name"]: item["metadata"]["labels"][ZONE]
        for item in installed.objects("nodes", selector=ZONE)
    }

    for name in PROGRAMS:
        replicas = pods(installed, f"app.kubernetes.io/component={name}")
        assert len({zones[item["spec"]["nodeName"]] for item in replicas}) == 2, name
    servers = pods(installed, "app.kubernetes.io/name=nats")
    assert {zones[item["spec"]["nodeName"]] for item in servers} == {*ZONES}


def disruptions_allowed(cluster: Cluster) -> Mapping[str, int]:
    """How many Pods of each workload a drain may take now."""
    return {
        item["metadata"]["name"]: item["status"].get("disruptionsAllowed", 0)
        for item in cluster.objects("poddisruptionbudgets", NAMESPACE)
    }


def test_a_drain_takes_one_replica_of_each_at_a_time(installed: Cluster) -> None:
    rolled_out(installed)
    names = [*(f"nodepool-{name}" for name in PROGRAMS), "nats"]

    wait_until(
        "each budget allows one disruption",
        lambda: disruptions_allowed(installed) == dict.fromkeys(names, 1),
        WITHIN_S,
    )


def versions(cluster: Cluster) -> str:
    """Return the version of each object of the manifests."""
    line = "{.kind}/{.metadata.name} {.metadata.generation} {.metadata.labels}"
    return cluster.kubectl(
        *("get", "-k", WHOLE, "-o"), f"jsonpath={{range .items[*]}}{line}{{'\\n'}}{{end}}"
    )


def test_applied_again_everything_is_unchanged(installed: Cluster) -> None:
    # given objects in which the API server and its controllers have filled in the rest
    rolled_out(installed)
    before = versions(installed)

    # when the objects are applied again
    printed = installed.kubectl("apply", "-k", WHOLE)

    # then no object changes; kubectl sends the selector of each budget, since a patch replaces it
    changed = [line for line in printed.splitlines() if not line.endswith(" unchanged")]
    budgets = ["nats", *(f"nodepool-{name}" for name in sorted(PROGRAMS))]
    assert changed == [f"poddisruptionbudget.policy/{name} configured" for name in budgets]
    assert installed.run("diff", "-k", WHOLE).stdout == ""
    assert versions(installed) == before
    assert "PodDisruptionBudget/nats 1" in before


def secret_versions(cluster: Cluster) -> Mapping[str, str]:
    """The version of each Secret that a program mounts, by name."""
    found = cluster.objects("secrets", NAMESPACE, "app.kubernetes.io/part-of=nodepool")
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in found}


def test_an_organisation_that_is_added_changes_what_servers_and_the_gateway_read_alone(
    installed: Cluster, identities: AuthFolder
) -> None:
    # given Secrets that are brought again without a change
    before = secret_versions(installed)
    bring(installed, identities)
    assert secret_versions(installed) == before

    # when an organisation and a user are added, and the Secrets brought again
    identities.change(lambda users: users.with_organisation("acme"))
    identities.add_member("acme", lambda key: new_member("alice", key, "editor"))
    bring(installed, identities)

    # then no key has changed, and no Pod is replaced: the kubelets bring what has
    after = secret_versions(installed)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {ACCOUNTS, MEMBERS}


def test_what_a_rollout_changes_is_replaced_without_a_gap(installed: Cluster) -> None:
    # given a Deployment at work
    rolled_out(installed)
    name = ("deployment/nodepool-quota", "-n", NAMESPACE)
    component = "app.kubernetes.io/component=quota"
    before = {item["metadata"]["uid"] for item in pods(installed, component)}

    # when its Pods are replaced
    available = "jsonpath={.status.availableReplicas}{'\\n'}"
    with installed.watching(*name, "-o", available) as seen:
        installed.kubectl("rollout", "restart", *name)
        installed.kubectl("rollout", "status", *name, ROLLOUT)
        wait_until("its states are seen", lambda: len(seen) > 1, WITHIN_S)

    # then two were at work at any time, and each is another one
    assert [number for number in seen if int(number or 0) < 2] == []
    wait_until("the old Pods are gone", lambda: len(pods(installed, component)) == 2, WITHIN_S)
    assert before.isdisjoint(item["metadata"]["uid"] for item in pods(installed, component))


@pytest.mark.parametrize("component", ["archive", "metal", "secured", "small"])
def test_each_form_of_it_is_taken_as_well(
    installed: Cluster, tmp_path: Path, component: str
) -> None:
    form = overlay(tmp_path / "overlay", component)

    done = installed.run("apply", "--dry-run=server", "-k", form)

    assert (done.returncode, done.stderr) == (0, "")


def test_scraping_rules_and_dashboards_are_taken_where_the_operator_is(installed: Cluster) -> None:
    installed.kubectl("apply", "--server-side", "-f", str(CACHE / "crds"))
    installed.kubectl("wait", "--for=condition=Established", "crd", "--all", ROLLOUT)

    # A kind can be applied some time after it is established.
    tried = ("apply", "--dry-run=server", "-k", MONITORING)
    wait_until("they are known", lambda: installed.run(*tried).returncode == 0, WITHIN_S)

    done = installed.run("apply", "-k", MONITORING)

    assert (done.returncode, done.stderr) == (0, "")
    again = installed.kubectl("apply", "-k", MONITORING).splitlines()
    assert [line for line in again if not line.endswith(" unchanged")] == []
    monitors = installed.objects("servicemonitors", NAMESPACE)
    jobs = []
    for monitor in monitors:
        (service,) = installed.objects(
            "services", NAMESPACE, selector_of(monitor["spec"]["selector"]["matchLabels"])
        )
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        jobs.append(service["metadata"]["name"])
    assert sorted(jobs) == ["nats", "nodepool"], "the jobs that the alerts name"


def test_what_is_scraped_is_every_replica_of_every_service(installed: Cluster) -> None:
    installed.kubectl("apply", "-k", MONITORING, "-l", "app.kubernetes.io/name=nodepool")
    rolled_out(installed)

    def scraped() -> set[str]:
        slices = installed.objects(
            "endpointslices", NAMESPACE, "kubernetes.io/service-name=nodepool"
        )
        return {
            endpoint["targetRef"]["name"]
            for item in slices
            for endpoint in item.get("endpoints") or ()
        }

    replicas = {
        item["metadata"]["name"] for item in pods(installed, "app.kubernetes.io/name=nodepool")
    }
    assert len(replicas) == 2 * len(PROGRAMS)
    wait_until("each replica is an endpoint", lambda: scraped() == replicas, WITHIN_S)


def selector_of(labels: Mapping[str, str]) -> str:
    """The labels as kubectl takes them."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
