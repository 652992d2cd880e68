"""The manifests under deploy/kubernetes/agent fit the code, and are applied without noise."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agent.pods.objects import pod_object
from kube.conftest import QUOTA
from kube.declared import AGENT
from kube.manifests import ROOT, Document, Manifests, rendered
from kube.test_manifests import (
    container,
    pod,
    pod_labels,
    ports,
    selected,
    service_settings,
)
from nodepool.cli.app import run
from nodepool.client.holder import holder_of
from nodepool.contract.pods import PodClass, reserved_taint
from nodepool.host import settings
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.addresses import split_addresses
from testbed.cluster import Cluster, without_skew
from testbed.plane import CLUSTER, H100, ORG, Plane

BUS_PORT = 4222
README = ROOT / AGENT / "README.md"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture(scope="module")
def agent_manifests() -> Manifests:
    """What `kubectl apply -k deploy/kubernetes/agent` sends."""
    return rendered(AGENT)


def test_the_settings_of_the_agent_are_ones_that_it_takes(agent_manifests: Manifests) -> None:
    data = agent_manifests.named("ConfigMap", "nodepool-agent")["data"]

    # The key is there once its Secret is.
    read = settings.read({k: value for k, value in data.items() if k != "NODEPOOL_NKEY_FILE"})

    assert (read.metrics_host, read.metrics_port) == ("0.0.0.0", 9464)
    assert {"NODEPOOL_ORG", "NODEPOOL_CLUSTER", "NODEPOOL_ZONE"} <= data.keys()


def example(name: str) -> str:
    """The value of a setting in the overlay that the page of the agent shows."""
    (value,) = re.findall(rf"(?m)^ +- {name}=(.+)$", README.read_text(encoding="utf-8"))
    return str(value)


def test_the_key_that_the_page_has_one_make_is_the_one_that_the_agent_shows(
    agent_manifests: Manifests, tmp_path: Path
) -> None:
    page = README.read_text(encoding="utf-8")
    (line,) = re.findall(r"(?m)^nodepool (auth .*) && nodepool (auth add-agent .*)$", page)
    (key, made) = re.findall(r"--from-file=(agent\S*)=(\S+)", page)[0]

    # when somebody types the lines of the page
    for words in (["auth", "init"], *(each.split() for each in line)):
        assert run([*words, "--dir", str(tmp_path)]) == 0

    # then the key is that of the organisation and cluster of the overlay
    org, cluster = example("NODEPOOL_ORG"), example("NODEPOOL_CLUSTER")
    holder = holder_of(Access(nkey_file=str(tmp_path / "keys" / org / made)))
    assert holder is not None
    assert (holder.org, holder.role, line[1].split()[-1]) == (org, "agent", cluster)
    data = agent_manifests.named("ConfigMap", "nodepool-agent")["data"]
    (volume,) = pod(agent_manifests.named("Deployment", "nodepool-agent"))["volumes"]
    (mounted,) = container(agent_manifests.named("Deployment", "nodepool-agent"))["volumeMounts"]
    assert data["NODEPOOL_NKEY_FILE"] == f"{mounted['mountPath']}/{key}"
    assert f"secret generic {volume['secret']['secretName']} " in page


def test_the_certificate_of_the_servers_has_every_name_that_they_are_asked_for_by(
    manifests: Manifests, agent_manifests: Manifests
) -> None:
    page = (ROOT / "deploy" / "kubernetes" / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"(?m)^\| `nats-tls` \|.*$", page)
    (forwarded,) = re.findall(r"NODEPOOL_URL=(tls://[^`\s]+)", page)
    urls = [
        service_settings(manifests)["NODEPOOL_URL"],
        agent_manifests.named("ConfigMap", "nodepool-agent")["data"]["NODEPOOL_URL"],
        forwarded,
    ]

    hosts = {urlsplit(each).hostname for url in urls for each in split_addresses(url)}

    assert hosts - {*re.findall("`([^`]+)`", row)} == set()
    assert len(hosts) == 7


def test_the_memory_of_the_agent_is_far_below_its_limit(agent_manifests: Manifests) -> None:
    page = (ROOT / "deploy" / "SCALING.md").read_text(encoding="utf-8")

    (measured,) = re.findall(r"(\d+) MB with 1,000 Nodes and 10,000 Pods", page)

    limit = container(agent_manifests.named("Deployment", "nodepool-agent"))["resources"]["limits"]
    assert int(measured) * 2 < int(limit["memory"].removesuffix("Mi"))


def test_the_image_has_what_the_agent_imports() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")

    assert 'EXTRAS="auth kubernetes nkeys otlp"' in dockerfile


def test_the_agent_runs_twice_and_is_probed_where_it_listens(agent_manifests: Manifests) -> None:
    deployment = agent_manifests.named("Deployment", "nodepool-agent")
    only = container(deployment)

    assert deployment["spec"]["replicas"] == 2
    assert (only["command"], only["args"]) == (["python"], ["-m", "agent"])
    assert only["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "metrics"}
    assert only["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert pod(deployment)["serviceAccountName"] == "nodepool-agent"


def test_the_agent_may_run_where_the_control_plane_does(agent_manifests: Manifests) -> None:
    taint = reserved_taint("control-plane")

    tolerations = pod(agent_manifests.named("Deployment", "nodepool-agent"))["tolerations"]

    assert {"key": taint.key, "operator": "Equal", "value": taint.value} in tolerations


def test_the_agent_keeps_no_node_on_which_it_runs(agent_manifests: Manifests) -> None:
    template = agent_manifests.named("Deployment", "nodepool-agent")["spec"]["template"]
    metadata = {**template["metadata"], "namespace": "kube-system", "name": "agent", "uid": "1"}

    found = pod_object({"metadata": metadata, "spec": {**template["spec"], "nodeName": "n1"}})

    assert found is not None
    assert found.pod.interruption is PodClass.GRACEFUL


# The agent and the bus in one cluster: what one policy lets out, the other lets in.


def labels_of(whole: Manifests, namespace: str) -> Mapping[str, str]:
    """The labels of a namespace, with the one that Kubernetes adds."""
    found = (item["metadata"] for item in whole.of_kind("Namespace"))
    labels = [each.get("labels", {}) for each in found if each["name"] == namespace]
    declared: Mapping[str, str] = labels[0] if labels else {}
    return {**declared, "kubernetes.io/metadata.name": namespace}


def is_selected(selector: Document, labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}, "this test knows no other"
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def is_let_in(whole: Manifests, policy: str, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether a policy of the control plane lets a Pod of a namespace reach its port for clients.

    As https://kubernetes.io/docs/concepts/services-networking/network-policies/ has it: what is in
    one entry holds at once, and entries are alternatives.
    """
    found = whole.named("NetworkPolicy", policy)
    for rule in found["spec"]["ingress"]:
        if BUS_PORT not in ports(rule):
            continue
        for peer in rule["from"]:
            own = namespace == found["metadata"]["namespace"]
            spaces = peer.get("namespaceSelector")
            in_space = own if spaces is None else is_selected(spaces, labels_of(whole, namespace))
            if in_space and is_selected(peer.get("podSelector", {}), labels):
                return True
    return False


def test_the_network_policies_let_the_agent_reach_the_bus_and_no_other_pod_beside_it(
    manifests: Manifests, agent_manifests: Manifests
) -> None:
    deployment = agent_manifests.named("Deployment", "nodepool-agent")
    labels, namespace = pod_labels(deployment), deployment["metadata"]["namespace"]
    url = agent_manifests.named("ConfigMap", "nodepool-agent")["data"]["NODEPOOL_URL"]

    egress = agent_manifests.named("NetworkPolicy", "nodepool-agent")["spec"]["egress"]
    anywhere = [rule for rule in egress if "to" not in rule]

    # The bus that the agent asks for is the one that these policies are about.
    servers = manifests.named("StatefulSet", "nats")
    assert split_addresses(url) == [
        f"nats://nats-{number}.{servers['spec']['serviceName']}"
        f".{servers['metadata']['namespace']}:{BUS_PORT}"
        for number in range(servers["spec"]["replicas"])
    ]
    assert any(BUS_PORT in ports(rule) for rule in anywhere)
    assert is_let_in(manifests, "nats", namespace, labels)
    assert not is_let_in(manifests, "nats", namespace, {"app.kubernetes.io/name": "other"})
    assert not is_let_in(manifests, "nats", "default", labels)


def test_the_network_policy_of_the_agent_is_about_its_pods_and_the_port_they_listen_on(
    agent_manifests: Manifests,
) -> None:
    (policy,) = agent_manifests.of_kind("NetworkPolicy")
    (coming,) = policy["spec"]["ingress"]
    listening = container(agent_manifests.named("Deployment", "nodepool-agent"))["ports"]

    assert [*selected(agent_manifests, policy["spec"]["podSelector"])] == ["nodepool-agent"]
    assert ports(coming) == {port["containerPort"] for port in listening}


def test_the_agent_is_admitted_under_the_restricted_profile(
    cluster: Cluster, agent_manifests: Manifests
) -> None:
    # given a namespace that admits nothing else, and warns of what a template has
    name = "restricted"
    cluster.kubectl("create", "namespace", name)
    warn = RESTRICTED.replace("enforce", "warn")
    cluster.kubectl("label", "namespace", name, RESTRICTED, warn)
    try:
        # when the Deployment is sent there
        deployment = agent_manifests.named("Deployment", "nodepool-agent")
        moved = {**deployment, "metadata": {**deployment["metadata"], "namespace": name}}
        done = cluster.run("create", "--dry-run=server", "-f", "-", given=json.dumps(moved))
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=false")

    # then the API server has nothing to say about it
    assert (done.returncode, without_skew(done.stderr)) == (0, "")


@pytest.fixture
def without_pods(declared: Cluster) -> Iterator[Cluster]:
    """The cluster, in which the Deployment has no Pods afterwards: kwok would only play them."""
    yield declared
    declared.kubectl("scale", "deployment", "nodepool-agent", "-n", "kube-system", "--replicas=0")


def test_applied_again_everything_is_unchanged(without_pods: Cluster) -> None:
    declared = without_pods
    declared.kubectl("apply", "-k", AGENT)

    printed = declared.kubectl("apply", "-k", AGENT)

    changed = [line for line in printed.splitlines() if not line.endswith(" unchanged")]
    # kubectl sends the selector of a budget each time, since a patch can only replace it.
    assert changed == ["poddisruptionbudget.policy/nodepool-agent configured"]
    assert declared.run("diff", "-k", AGENT).stdout == ""


def test_applied_by_the_server_nothing_is_written_again(without_pods: Cluster) -> None:
    declared = without_pods

    def versions() -> str:
        return declared.kubectl(
            *("get", "-k", AGENT, "-o"),
            "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}\n{end}",
        )

    apply = ("apply", "--server-side", "--force-conflicts", "-k", AGENT)
    declared.kubectl(*apply)
    before = versions()

    declared.kubectl(*apply)

    assert versions() == before
    assert "MutatingAdmissionPolicy/nodepool-cpu-toleration" in before


def plugin(folder: Path) -> Path:
    """The program that an installation of the project puts on PATH for kubectl."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    entry = EntryPoint("x", project["project"]["scripts"]["kubectl-nodepool"], "console_scripts")
    program = folder / "kubectl-nodepool"
    code = f"from {entry.module} import {entry.attr}; {entry.attr}()"
    program.write_text(f'#!{sys.executable}\n"""The plugin."""\n{code}\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("kind", "expected"), [("quota", str(QUOTA)), ("capacity", H100)], ids=["quota", "capacity"]
)
def test_kubectl_reads_quotas_and_capacity(
    plane: Plane, tmp_path: Path, kind: str, expected: str
) -> None:
    environment = {
        **os.environ,
        "PATH": f"{plugin(tmp_path).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NODEPOOL_URL": plane.url,
        "NODEPOOL_ORG": ORG,
        "NODEPOOL_CLUSTER": CLUSTER,
    }

    done = subprocess.run(
        ["kubectl", "nodepool", "get", kind],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    (row,) = (line.split() for line in done.stdout.splitlines() if H100 in line)
    assert expected in row


def test_prometheus_finds_the_replicas_of_the_agent_as_the_alerts_name_them(
    agent_manifests: Manifests,
) -> None:
    (monitor,) = rendered(f"{AGENT}/monitoring").documents
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    deployment = agent_manifests.named("Deployment", "nodepool-agent")
    labels = deployment["spec"]["template"]["metadata"]["labels"]

    assert monitor["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert endpoint["port"] in [each["name"] for each in container(deployment)["ports"]]
    assert endpoint["relabelings"] == [
        {"action": "replace", "targetLabel": "job", "replacement": "nodepool"},
        {"action": "replace", "targetLabel": "service", "replacement": "agent"},
    ]
    assert 'up{job="nodepool"}' in (ROOT / "deploy/prometheus/nodepool.rules.yml").read_text(
        "utf-8"
    )
