"""The compose file as a new user brings it up: what runs, what it may do, and what watches it."""

import json
from urllib.parse import quote

import pytest

from containers.stack import Inspected, Stack, inside, service_of, until
from dashboards.pages import PAGES
from nodepool.contract.services import SHARED
from nodepool.local.demo import ZONE
from support.grafana import everything, filled, queries

pytestmark = pytest.mark.timeout(900)
DASHBOARDS = "/api/search?type=dash-db"
EXAMPLES = {"batch": 2, "services": 3, "training": 8}
CAPABILITIES = """
status = dict(line.split(":\\t", 1) for line in open("/proc/1/status") if ":\\t" in line)
print({name: status[name].split()[0] for name in ("Uid", "Gid", "CapEff", "CapBnd", "NoNewPrivs")})
"""
WRITE = """
for place in ("/x", "/tmp/x", "/app/x"):
    try:
        open(place, "w")
    except OSError as error:
        print(error.strerror)
    else:
        print("written")
"""


def targets(stack: Stack) -> dict[str, int]:
    """How many Nodes each NodePool has that should have so many."""
    return {
        name: pool["status"]["currentNodes"]
        for name, pool in stack.pools().items()
        if pool["status"]["currentNodes"] == pool["spec"]["targetNodes"]
    }


def test_everything_is_at_work_and_the_demo_has_its_nodes(stack: Stack) -> None:
    # A check of its health may be late, so that one is looked at again.
    stack.wait_until_at_work()
    assert {name: stack.names()[name] for name in SHARED} == dict.fromkeys(SHARED, 2)
    assert {name: n for name, n in targets(stack).items() if name in EXAMPLES} == EXAMPLES


def test_a_second_up_changes_nothing(stack: Stack) -> None:
    # given a NodePool that has been changed since the demo was set up
    stack.cli("scale", "nodepool", "batch", "--target", "4")
    stack.wait_until_at_work()
    pools = {name: pool["spec"] for name, pool in stack.pools().items()}
    before = {each["Id"] for each in stack.containers()}

    # when everything is started that is not running, and is waited for
    stack.run("up", "--wait")

    # then the same containers run, and the NodePools are as they were
    assert {each["Id"] for each in stack.containers()} == before
    assert {name: pool["spec"] for name, pool in stack.pools().items()} == pools
    stack.cli("scale", "nodepool", "batch", "--target", "2")
    stack.wait_until_at_work()


# What the containers may do.


def test_no_running_program_is_root_or_has_a_capability_or_can_write(stack: Stack) -> None:
    running = [each for each in stack.containers() if service_of(each) in SHARED]

    for container in running:
        assert json.loads(inside(container, CAPABILITIES).replace("'", '"')) == {
            "Uid": "10001",
            "Gid": "10001",
            "CapEff": "0" * 16,
            "CapBnd": "0" * 16,
            "NoNewPrivs": "1",
        }
    assert inside(running[0], WRITE).splitlines() == ["Read-only file system"] * 3


def test_every_container_is_bounded_and_without_rights_as_the_engine_sees_it(stack: Stack) -> None:
    def rights(container: Inspected) -> dict[str, object]:
        host = container["HostConfig"]
        names = ("Privileged", "ReadonlyRootfs", "CapDrop", "CapAdd", "SecurityOpt")
        return {name: host[name] for name in names}

    confined = {
        "Privileged": False,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": None,
        "SecurityOpt": ["no-new-privileges:true"],
    }
    found = {each["Name"]: rights(each) for each in stack.containers()}
    bounds = [each["HostConfig"] for each in stack.containers()]

    assert found == dict.fromkeys(found, confined)
    assert [host for host in bounds if not (host["Memory"] and host["PidsLimit"])] == []
    users = {each["Config"]["User"].partition(":")[0] for each in stack.containers()}
    assert users == {"10001", "65534", "472"}
    ports = {
        bound["HostIp"]
        for each in stack.containers()
        for bindings in each["HostConfig"]["PortBindings"].values()
        for bound in bindings
    }
    assert ports == {"127.0.0.1"}


# What watches it.


def test_prometheus_asks_every_replica_and_has_the_rules(stack: Stack) -> None:
    def up() -> list[str]:
        page = stack.page("PROMETHEUS_PORT", "/api/v1/targets?state=active")
        active = page["data"]["activeTargets"] if page else []
        return sorted(target["scrapeUrl"] for target in active if target["health"] == "up")

    replicas = [each for each in stack.containers() if service_of(each) in SHARED]
    addresses = {
        network["IPAddress"]
        for each in replicas
        for network in each["NetworkSettings"]["Networks"].values()
    }

    until(lambda: {f"http://{ip}:9464/metrics" for ip in addresses} <= {*up()}, "targets up")

    groups = stack.answered("PROMETHEUS_PORT", "/api/v1/rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
    assert [rule for rule in rules if rule["type"] == "alerting"] != []

    def current() -> dict[str, int]:
        page = stack.page("PROMETHEUS_PORT", "/api/v1/query?query=nodepool_current_nodes")
        found = page["data"]["result"] if page else []
        return {each["metric"]["pool"]: int(each["value"][1]) for each in found}

    nodes = {name: pool["status"]["currentNodes"] for name, pool in stack.pools().items()}
    until(lambda: current() == nodes, f"the Nodes of each NodePool in Prometheus: {nodes}")


def test_prometheus_knows_where_alertmanager_is(stack: Stack) -> None:
    def known() -> bool:
        page = stack.page("PROMETHEUS_PORT", "/api/v1/alertmanagers")
        return bool(page and page["data"]["activeAlertmanagers"])

    until(known, "an Alertmanager that Prometheus knows")
    assert stack.answered("ALERTMANAGER_PORT", "/api/v2/status")["config"]["original"]


def test_grafana_has_the_dashboards_and_asks_prometheus(stack: Stack) -> None:
    # This much holds of Grafana and of its stand-in alike.
    assert stack.answered("GRAFANA_PORT", "/api/health")["database"] == "ok"

    # It may be healthy before it has read the dashboards.
    def dashboards() -> set[str]:
        return {each["uid"] for each in stack.page("GRAFANA_PORT", DASHBOARDS) or ()}

    wanted = {page.uid for page in PAGES}
    until(lambda: dashboards() == wanted, lambda: f"the dashboards: {dashboards()}")
    until(lambda: asked(stack, "vector(42)") == [42], "an answer of Prometheus through Grafana")


def asked(stack: Stack, expr: str) -> list[float]:
    """What Grafana is answered by its Prometheus: the value of each series now."""
    source = "/api/datasources/proxy/uid/nodepool-prometheus"
    page = stack.page("GRAFANA_PORT", f"{source}/api/v1/query?query={quote(expr)}")
    return [float(series["value"][1]) for series in page["data"]["result"]] if page else []


# What a new user tries first.


def shown(stack: Stack, page: str, panel: str, pool: str = "") -> float:
    """The number that a panel of a dashboard has now, for a NodePool where it is of one."""
    (chosen,) = [each for each in PAGES if each.uid == page]
    expr = next(query.expr for query in queries(chosen) if query.panel == panel)
    choice = {"org": "demo", "cluster": "demo", "pool": pool} if pool else everything(chosen)
    return sum(asked(stack, filled(expr, choice)))


def test_what_a_new_user_changes_is_seen_on_the_dashboards(stack: Stack) -> None:
    def now() -> dict[str, float]:
        return {
            "target": shown(stack, "nodepool-pool", "Target", "services"),
            "registered": shown(stack, "nodepool-pool", "Registered", "services"),
            "preempted": shown(stack, "nodepool-pool", "Being preempted", "batch"),
            "broken": shown(stack, "nodepool-pool", "Unhealthy", "training"),
        }

    # given the demo, as Grafana shows it
    at_first = {"target": 3, "registered": 3, "preempted": 0, "broken": 0}
    until(lambda: now() == at_first, lambda: f"the demo on the dashboards: {now()}")
    batch, training = (nodes_of(stack, pool)[0] for pool in ("batch", "training"))

    # when a pool is scaled, a spot Node is preempted, and a machine breaks
    stack.cli("scale", "nodepool", "services", "--target", "4")
    stack.cli("preempt", "node", batch)
    stack.cli("fleet", "break", f"{ZONE}/{training}", "--fault", "xid")

    # then each is seen, first of all the preemption, which is over after two minutes
    until(lambda: now()["preempted"] == 1, lambda: f"a preemption on the dashboards: {now()}")
    stack.cli("ack", batch)
    changed = {"target": 4, "registered": 4, "broken": 1}
    until(lambda: changed.items() <= now().items(), lambda: f"what was changed there: {now()}")

    # and so is that it is over
    stack.cli("scale", "nodepool", "services", "--target", "3")
    stack.cli("reboot", "node", training)
    until(lambda: now() == at_first, lambda: f"the dashboards as they were: {now()}")

    def counted() -> dict[str, bool]:
        panels = ("Nodes failed", "Preemptions")
        return {panel: shown(stack, "nodepool-nodes", panel) > 0 for panel in panels}

    until(lambda: all(counted().values()), lambda: f"what happened is counted: {counted()}")
    assert batch not in nodes_of(stack, "batch")


def nodes_of(stack: Stack, pool: str) -> list[str]:
    """The names of the Nodes of a NodePool."""
    label = f"compute.coreweave.com/node-pool={pool}"
    listed = stack.cli("get", "nodes", "-l", label, "-o", "name")
    return [line.partition("/")[2] for line in listed.splitlines()]
