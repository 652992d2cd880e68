"""The manifests under deploy/kubernetes fit the code, the compose file and one another."""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from archiver.host.settings import read_archiver
from kube.declared import AGENT
from kube.manifests import MONITORING, ROOT, WHOLE, Document, Manifests, overlay, rendered
from monitoring import rules
from nodepool.auth.accounts import ARCHIVER, GATEWAY, PROVISIONER, SYSTEM_USER
from nodepool.auth.folder import AuthFolder
from nodepool.contract.services import FEED, OPTIONAL, SERVICES, SHARED
from nodepool.host import settings
from nodepool.local.secrets import key_secret, secrets_text
from nodepool.nats.wire.addresses import split_addresses

WORKLOADS = ("Deployment", "StatefulSet")
SIZE = re.compile(r"([0-9]+)\s*(GB|Gi)")
BYTES = {"GB": 10**9, "Gi": 2**30}


@pytest.fixture(scope="module", params=[WHOLE, AGENT])
def any_manifests(request: pytest.FixtureRequest) -> Manifests:
    """What one `kubectl apply -k` sends: the control plane, or the agent of a cluster."""
    folder: str = request.param
    return rendered(folder)


def pod(workload: Document) -> Mapping[str, Any]:
    """The spec of the Pods of a Deployment or a StatefulSet."""
    spec: Mapping[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Document) -> Mapping[str, Any]:
    """Return its container; of a server, the container of the server itself."""
    first, *others = pod(workload)["containers"]
    assert isinstance(first, dict)
    assert {each["name"] for each in others} in (set(), {"exporter", "provisioner"})
    return first


def containers(workload: Document) -> Sequence[Mapping[str, Any]]:
    """Return all of its containers."""
    found: Sequence[Mapping[str, Any]] = pod(workload)["containers"]
    return found


def pod_labels(workload: Document) -> Mapping[str, str]:
    """The labels of its Pods."""
    labels: Mapping[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def service_settings(manifests: Manifests) -> Mapping[str, str]:
    """The environment that every service is given."""
    (config,) = (item for item in manifests.of_kind("ConfigMap") if "NODEPOOL_URL" in item["data"])
    data: Mapping[str, str] = config["data"]
    return data


def bytes_of(text: str) -> int:
    match = SIZE.search(text)
    assert match is not None, f"{text!r} has no size"
    return int(match[1]) * BYTES[match[2]]


def test_every_service_of_the_list_is_a_deployment_of_two_replicas(manifests: Manifests) -> None:
    found = {
        item["metadata"]["name"]: (item["spec"]["replicas"], container(item)["args"])
        for item in manifests.of_kind("Deployment")
    }

    assert found == {f"nodepool-{name}": (2, ["-m", name]) for name in (*SERVICES, GATEWAY)}


def keys_of(workload: Document) -> list[str]:
    """The Secrets with keys that its Pods mount."""
    (keys,) = (each for each in pod(workload)["volumes"] if each["name"] == "keys")
    return [each["secret"]["name"] for each in keys["projected"]["sources"]]


def test_each_program_mounts_its_own_key_and_no_other(manifests: Manifests) -> None:
    found = {item["metadata"]["name"]: keys_of(item) for item in manifests.of_kind(*WORKLOADS)}

    assert found == {
        **{f"nodepool-{name}": [key_secret(name)] for name in (*SERVICES, GATEWAY)},
        "nats": [key_secret(PROVISIONER), key_secret(SYSTEM_USER)],
    }
    # A server itself sees the accounts, which say who may come in, and no key.
    servers = manifests.named("StatefulSet", "nats")
    mounted = {
        each["name"]: {mount["name"] for mount in each.get("volumeMounts", ())}
        for each in containers(servers)
    }
    assert mounted == {
        "nats": {"data", "config", "accounts"},
        "exporter": set(),
        "provisioner": {"accounts", "keys"},
    }


def test_every_secret_that_a_pod_mounts_is_one_that_the_command_line_prints(
    manifests: Manifests, tmp_path: Path
) -> None:
    folder = AuthFolder(tmp_path / "auth")
    folder.init()
    made = {
        each["metadata"]["name"]: each for each in json.loads(secrets_text(folder, "x"))["items"]
    }

    mounted = {
        source["secret"]["name" if "name" in source["secret"] else "secretName"]
        for item in manifests.of_kind(*WORKLOADS)
        for volume in pod(item)["volumes"]
        for source in volume.get("projected", {}).get("sources", [volume])
        if "secret" in source
    }

    # The reader of a process of several services is in the component for small cells, and the
    # archiver and the service for real machines are in components too.
    beside = {key_secret(name) for name in (FEED, ARCHIVER, *OPTIONAL)}
    assert made.keys() == mounted | beside
    assert [*made[key_secret("quota")]["data"]] == ["quota.nk"]
    text = json.dumps([*made.values()])
    assert b64(folder.key_file("quota")) in text
    assert b64(folder.key_file("operator")) not in text

    # Identities of a release without the service for real machines are printed as they are.
    folder.key_file("metal").unlink()
    older = json.loads(secrets_text(folder, "x"))["items"]
    names = {each["metadata"]["name"] for each in older}
    assert made.keys() - names == {key_secret("metal")}


def b64(path: Path) -> str:
    """The content of a file as a Secret has it."""
    return base64.b64encode(path.read_bytes()).decode()


def test_the_settings_of_the_services_are_ones_that_they_take(manifests: Manifests) -> None:
    read = settings.read(service_settings(manifests))

    assert (read.replicas, read.metrics_host, read.metrics_port) == (3, "0.0.0.0", 9464)


def test_the_program_beside_a_server_makes_as_many_copies_as_the_services_know(
    manifests: Manifests,
) -> None:
    beside = provisioner(manifests.named("StatefulSet", "nats"))

    assert beside["NODEPOOL_REPLICAS"] == service_settings(manifests)["NODEPOOL_REPLICAS"]


def provisioner(servers: Document) -> Mapping[str, str]:
    """The environment of the program beside a server."""
    (found,) = (each for each in containers(servers) if each["name"] == PROVISIONER)
    return {each["name"]: each["value"] for each in found["env"]}


def test_services_know_the_address_of_each_server(manifests: Manifests) -> None:
    servers = manifests.named("StatefulSet", "nats")
    names = [f"nats-{number}.nats" for number in range(servers["spec"]["replicas"])]

    assert servers["spec"]["serviceName"] == "nats"
    assert split_addresses(service_settings(manifests)["NODEPOOL_URL"]) == [
        f"nats://{name}:4222" for name in names
    ]
    assert re.findall(r"nats://(\S+):6222", configuration(manifests)) == names


def server_files(manifests: Manifests) -> Mapping[str, str]:
    """The files of the servers' configuration, by name."""
    (config,) = (item for item in manifests.of_kind("ConfigMap") if "nats.conf" in item["data"])
    data: Mapping[str, str] = config["data"]
    return data


def configuration(manifests: Manifests) -> str:
    """The main one of these files."""
    return server_files(manifests)["nats.conf"]


def test_the_server_stops_storing_before_its_volume_is_full(manifests: Manifests) -> None:
    (claim,) = manifests.named("StatefulSet", "nats")["spec"]["volumeClaimTemplates"]
    volume = bytes_of(claim["spec"]["resources"]["requests"]["storage"])
    (limit,) = re.findall(r"max_file_store: *(\S+)", configuration(manifests))

    assert bytes_of(limit) < 0.9 * volume


def test_the_server_has_more_memory_than_it_is_told_to_stay_below(manifests: Manifests) -> None:
    server = container(manifests.named("StatefulSet", "nats"))
    values = {item["name"]: item.get("value") for item in server["env"]}

    assert values["GOMEMLIMIT"] == "800MiB"
    assert server["resources"]["limits"]["memory"] == "1Gi"


def test_images_are_those_of_the_compose_file(manifests: Manifests) -> None:
    dockerfile = (ROOT / "deploy" / "bus.Dockerfile").read_text()
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    images = {each["image"] for item in manifests.of_kind(*WORKLOADS) for each in containers(item)}
    (ours,) = (image for image in images if image.startswith("nodepool:"))
    (exporter,) = (image for image in images if "exporter" in image)
    (server,) = images - {ours, exporter}

    assert compose["demo"]["image"] == f"${{IMAGE:-{ours.partition(':')[0]}}}"
    assert f"ARG NATS_IMAGE={server}\n" in dockerfile
    assert compose["nats-exporter"]["image"] == f"${{NATS_EXPORTER_IMAGE:-{exporter}}}"


UNPRIVILEGED = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_each_workload_has_probes_resources_and_no_rights(any_manifests: Manifests) -> None:
    for item in any_manifests.of_kind(*WORKLOADS):
        for each in containers(item):
            probes = {"livenessProbe", "readinessProbe"} & each.keys()
            is_server_or_service = each == container(item)
            assert ("readinessProbe" in probes) is is_server_or_service, each["name"]
            # What is beside a server serves nothing: its process ends where it cannot go on.
            assert ("livenessProbe" in probes) is (each["name"] != PROVISIONER), each["name"]
            assert each["resources"]["requests"].keys() == {"cpu", "memory"}
            assert each["resources"]["limits"].keys() == {"memory"}
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        assert pod(item)["securityContext"].items() >= UNPRIVILEGED.items()
        # A token is there for what has an account of its own, and for nothing else.
        has_token = pod(item).get("automountServiceAccountToken", True)
        assert has_token is ("serviceAccountName" in pod(item))


# Selectors: each one is meant for some Pods, and misses none of them by a typing error.


def selected(manifests: Manifests, selector: Mapping[str, Any]) -> Iterator[str]:
    """The workloads whose Pods a label selector selects."""
    wanted = selector.get("matchLabels", {})
    for item in manifests.of_kind(*WORKLOADS):
        labels = pod_labels(item)
        if any(labels.get(key) != value for key, value in wanted.items()):
            continue
        rules = selector.get("matchExpressions", [])
        assert all(rule["operator"] == "NotIn" for rule in rules), "this test knows no other"
        if all(labels.get(rule["key"]) not in rule["values"] for rule in rules):
            yield item["metadata"]["name"]


ALL_SERVICES = {f"nodepool-{name}" for name in (*SERVICES, GATEWAY)}


def test_each_workload_selects_its_own_pods_and_so_does_its_budget(
    any_manifests: Manifests,
) -> None:
    for item in any_manifests.of_kind(*WORKLOADS, "PodDisruptionBudget"):
        name = item["metadata"]["name"]
        assert [*selected(any_manifests, item["spec"]["selector"])] == [name]
    budgets = [item["metadata"]["name"] for item in any_manifests.of_kind("PodDisruptionBudget")]
    workloads = [item["metadata"]["name"] for item in any_manifests.of_kind(*WORKLOADS)]
    assert sorted(budgets) == sorted(workloads)


def test_a_budget_keeps_no_node_from_being_drained(any_manifests: Manifests) -> None:
    replicas = {
        item["metadata"]["name"]: item["spec"]["replicas"]
        for item in any_manifests.of_kind(*WORKLOADS)
    }

    for item in any_manifests.of_kind("PodDisruptionBudget"):
        assert item["spec"]["maxUnavailable"] == 1
        assert replicas[item["metadata"]["name"]] > 1


def test_replicas_are_spread_over_hosts_and_zones(any_manifests: Manifests) -> None:
    for item in any_manifests.of_kind(*WORKLOADS):
        keys = []
        for rule in pod(item)["topologySpreadConstraints"]:
            keys.append(rule["topologyKey"])
            assert [*selected(any_manifests, rule["labelSelector"])] == [item["metadata"]["name"]]
        assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


def test_each_network_policy_is_about_the_pods_that_it_is_meant_for(manifests: Manifests) -> None:
    found = {
        item["metadata"]["name"]: {*selected(manifests, item["spec"]["podSelector"])}
        for item in manifests.of_kind("NetworkPolicy")
    }

    everything = {*ALL_SERVICES, "nats"}
    assert found == {
        "default-deny": everything,
        "dns": everything,
        "clients": ALL_SERVICES,
        "nats": {"nats"},
        "metrics": ALL_SERVICES,
        "server-metrics": {"nats"},
        "traces": ALL_SERVICES,
    }


def test_what_one_side_may_send_the_other_side_may_receive(manifests: Manifests) -> None:
    """Clients reach the servers, servers one another; and each port is one that listens."""
    policies = {
        item["metadata"]["name"]: item["spec"] for item in manifests.of_kind("NetworkPolicy")
    }
    listening = {
        port["containerPort"]
        for item in manifests.of_kind(*WORKLOADS)
        for each in containers(item)
        for port in each.get("ports", ())
    }

    sent = [ports(rule) for name in ("clients", "nats") for rule in policies[name]["egress"]]
    receivers = ("nats", "metrics", "server-metrics")
    received = [ports(rule) for name in receivers for rule in policies[name]["ingress"]]

    assert (sent, received) == ([{4222}, {6222}], [{4222}, {6222}, {9464}, {7777}])
    assert {4222, 6222, 9464, 7777} <= listening


def ports(rule: Mapping[str, Any]) -> set[int]:
    """The TCP ports that a rule of a network policy allows."""
    return {port["port"] for port in rule["ports"] if port["protocol"] == "TCP"}


def test_the_page_about_operating_stops_every_service_and_no_server(manifests: Manifests) -> None:
    page = (ROOT / "deploy" / "OPERATING.md").read_text(encoding="utf-8")

    (key, value), *others = re.findall(
        r"scale deployment --selector (\S+)=(\S+) --replicas=0", page
    )

    stopped = {
        item["metadata"]["name"]
        for item in manifests.of_kind("Deployment")
        if item["metadata"]["labels"].get(key) == value
    }
    assert not others
    assert stopped == ALL_SERVICES


# Monitoring.


def test_the_alert_rules_are_those_of_prometheus() -> None:
    assert rules.FILE.read_text(encoding="utf-8") == rules.text(), "run `make rules`"
    mine = yaml.safe_load(rules.FILE.read_text(encoding="utf-8"))["spec"]
    assert mine == yaml.safe_load(rules.RULES.read_text(encoding="utf-8"))


def test_each_dashboard_is_in_a_config_map_that_is_small_enough() -> None:
    files = {path.name for path in (ROOT / "deploy/grafana/dashboards").glob("*.json")}
    maps = [item["data"] for item in rendered(MONITORING).of_kind("ConfigMap")]

    assert files == {name for data in maps for name in data}
    # https://kubernetes.io/docs/concepts/configuration/configmap/#motivation
    assert all(sum(map(len, data.values())) < 2**20 for data in maps)


def test_every_page_that_an_alert_links_is_in_the_config_map_that_prometheus_is_given() -> None:
    # given what the page about monitoring has the Prometheus object say
    page = (ROOT / "deploy" / "kubernetes" / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"(?s)  ```yaml\n(  spec:\n    configMaps.*?)  ```", page)
    spec = yaml.safe_load(dedent(shown))["spec"]
    (config,) = rendered("deploy/runbooks").documents

    # when the alerts link their pages
    text = rules.RULES.read_text(encoding="utf-8")
    linked = {*re.findall(r"/user/(\w+\.md)", text)}

    # then Prometheus serves each of them from there, as its operator mounts ConfigMaps
    # https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PrometheusSpec
    assert linked
    assert linked - config["data"].keys() == set()
    pages = {path.name for path in (ROOT / "deploy" / "runbooks").glob("*.md")}
    assert config["data"].keys() == pages
    name = config["metadata"]["name"]
    assert spec == {
        "configMaps": [name],
        "additionalArgs": [
            {"name": "web.user-assets", "value": f"/etc/prometheus/configmaps/{name}"}
        ],
    }


# The component with the archiver.


def test_the_archiver_shows_its_own_key_and_trims_the_log_into_a_volume(tmp_path: Path) -> None:
    whole = rendered(overlay(tmp_path / "overlay", "archive"))

    archiver = whole.named("Deployment", "nodepool-archiver")
    made, env = container(archiver), {item["name"]: item["value"] for item in env_of(archiver)}
    assert (archiver["spec"]["replicas"], made["args"]) == (1, ["-m", "archiver"])
    assert archiver["spec"]["strategy"] == {"type": "Recreate"}
    assert keys_of(archiver) == [key_secret(ARCHIVER)]
    assert made["image"].startswith("nodepool-archiver:")
    services = whole.named("Deployment", "nodepool-quota")
    assert made["envFrom"] == container(services)["envFrom"]
    assert container(services)["image"].startswith("nodepool:")
    given = {**service_settings(whole), **env}
    assert read_archiver(given | {"NODEPOOL_NKEY_FILE": ""}).trims
    (volume,) = (each for each in pod(archiver)["volumes"] if each["name"] == "archive")
    claim = volume["persistentVolumeClaim"]["claimName"]
    assert whole.named("PersistentVolumeClaim", claim)["metadata"]["namespace"] == "nodepool"
    (mount,) = (each for each in made["volumeMounts"] if each["name"] == "archive")
    assert mount["mountPath"] == env["NODEPOOL_ARCHIVE"]


# The component with the service for real machines.


def test_the_service_for_real_machines_has_its_key_its_inventory_and_its_credentials(
    tmp_path: Path,
) -> None:
    whole = rendered(overlay(tmp_path / "overlay", "metal"))

    metal, quota = (whole.named("Deployment", f"nodepool-{name}") for name in ("metal", "quota"))
    made = container(metal)
    env = {each["name"]: each["value"] for each in env_of(metal)}
    assert (metal["spec"]["replicas"], made["args"]) == (2, ["-m", "metal"])
    assert keys_of(metal) == [key_secret("metal")]
    assert made["image"].startswith("nodepool-metal:")
    assert made["envFrom"] == container(quota)["envFrom"]
    mounted = {each["name"]: each["mountPath"] for each in made["volumeMounts"]}
    assert env["NODEPOOL_INVENTORY"] == f"{mounted['inventory']}/inventory.yaml"
    assert env["NODEPOOL_METAL_REPORT_KEY_FILE"] == f"{mounted['credentials']}/report.key"
    reports = whole.named("Service", "reports-metal")["spec"]
    assert str(reports["ports"][0]["port"]) == env["NODEPOOL_METAL_REPORT_PORT"]
    assert [*selected(whole, {"matchLabels": reports["selector"]})] == ["nodepool-metal"]
    assert {each["name"] for each in pod(metal)["volumes"]} == {*mounted}
    for name in ("controllers-metal", "reports-metal"):
        policy = whole.named("NetworkPolicy", name)
        assert [*selected(whole, policy["spec"]["podSelector"])] == ["nodepool-metal"]


def env_of(workload: Document) -> Sequence[Mapping[str, str]]:
    """What its container has in its environment of its own."""
    found: Sequence[Mapping[str, str]] = container(workload)["env"]
    return found


# The component for small cells.


def test_three_deployments_run_every_service_of_a_small_cell_once(tmp_path: Path) -> None:
    small = rendered(overlay(tmp_path / "overlay", "small"))

    args = [container(item)["args"] for item in small.of_kind("Deployment")]

    run = [[name for name in each if name in SERVICES] for each in args]
    assert sorted(filter(None, run)) == sorted(map(list, SHARED.values()))
    assert keys_of(small.named("Deployment", "nodepool-allocator")) == [
        key_secret(name) for name in ("allocator", "preemption", "aggregator", FEED)
    ]
    assert sorted(name for names in run for name in names) == sorted(SERVICES)
    budgets = {item["metadata"]["name"] for item in small.of_kind("PodDisruptionBudget")}
    assert budgets == {"nats", *(item["metadata"]["name"] for item in small.of_kind("Deployment"))}
