"""Two agents that are killed at random between a cluster and a bus that are, while people work."""

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from kube.audit import AuditLog
from kube.chaos import Chaos
from kube.comparing import disagreements, log_of, violations
from kube.storm import NOTE, Deeds, Load
from nodepool.contract.log import Entry
from testbed.agent import USER, Agent, declare
from testbed.cluster import Cluster, wait_until
from testbed.plane import Plane

SECONDS = 120.0
REST_S = 120.0
"""How long it may take until all agrees once all faults have ended."""


@pytest.fixture
def agents(cluster: Cluster, plane: Plane, tmp_path: Path) -> Iterator[tuple[Agent, Agent]]:
    """Two replicas."""
    account = declare(cluster)
    with (
        Agent(tmp_path, account, plane.url, name="one") as first,
        Agent(tmp_path, account, plane.url, name="two") as second,
    ):
        for each in (first, second):
            each.wait_until_ready()
        yield first, second


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
def test_whatever_is_killed_both_sides_agree_in_the_end_and_nothing_is_lost_or_done_twice(
    cluster: Cluster, plane: Plane, agents: tuple[Agent, Agent], seed: int
) -> None:
    # given people at work on both sides, while parts are killed
    audit, load = AuditLog(cluster.folder), Load(seed, cluster, plane)
    end = time.monotonic() + SECONDS
    with Chaos(seed, cluster, plane, agents) as chaos:
        while time.monotonic() < end:
            load.act()

    # when that is over
    began = time.monotonic()
    for agent in agents:
        agent.wait_until_ready()
    try:
        wait_until("both sides agree", lambda: not disagreements(cluster, plane), REST_S)
    except TimeoutError as error:
        pytest.fail(f"{error}: {disagreements(cluster, plane)}")
    note = f"{chaos.counts} {load.deeds.counts} at rest after {time.monotonic() - began:.1f} s"
    sys.stderr.write(f"\n{note}\n")

    # then nothing is lost, and nothing was done that nobody wanted
    entries = log_of(plane)
    told = warnings(cluster)
    assert violations(entries) == []
    assert disagreements(cluster, plane) == []
    assert lost_pools(load.deeds, cluster) == []
    assert lost_edits(load.deeds, cluster, entries, told) == []
    assert needless_evictions(load.deeds, audit, entries) == []
    assert [each.errors() for each in agents] == ["", ""]
    assert [line for each in agents for line in each.lines("bug")] == []


def warnings(cluster: Cluster) -> Mapping[str, str]:
    """The messages of all Warning Events about each object."""
    told: dict[str, str] = {}
    for each in cluster.objects("events", "default"):
        if each["type"] == "Warning":
            name = each["involvedObject"]["name"]
            told[name] = f"{told.get(name, '')}\n{each['message']}"
    return told


def lost_pools(deeds: Deeds, cluster: Cluster) -> Sequence[str]:
    """NodePools that are not there although nobody has deleted them, or are although one has."""
    names = {each["metadata"]["name"] for each in cluster.objects("nodepools")}
    return [
        *(
            f"{name} is lost"
            for name in sorted(deeds.created - deeds.deleted - deeds.unsure - names)
        ),
        *(f"{name} was deleted" for name in sorted(deeds.deleted & names)),
    ]


def lost_edits(
    deeds: Deeds, cluster: Cluster, entries: Sequence[Entry], told: Mapping[str, str]
) -> Sequence[str]:
    """Edits of people in the cluster that neither were taken nor answered."""
    lost = []
    for pool in cluster.objects("nodepools"):
        name = pool["metadata"]["name"]
        missing = deeds.labels.get(name, set()) - pool["spec"].get("nodeLabels", {}).keys()
        lost += [f"{name}: {key}" for key in sorted(missing) if key not in told.get(name, "")]
        value, since = deeds.notes.get(name, ("", 0))
        holds = pool["spec"].get("nodeAnnotations", {}).get(NOTE) == value
        stored = any(
            f'"{value}"'.encode() in entry.content and entry.subject.startswith("np.evt.")
            for entry in entries
            if entry.position > since
        )
        if value and not (holds or stored or value in told.get(name, "")):
            lost.append(f"{name}: {value}")
    return lost


def needless_evictions(deeds: Deeds, audit: AuditLog, entries: Sequence[Entry]) -> Sequence[str]:
    """Pods that the agent has ended on a Node that was never to be drained, or removed."""
    drained = set()
    for entry in entries:
        content = entry.content
        is_drain = entry.subject.endswith(".NodeActionRequested") and b'"drain":""' not in content
        if is_drain or re.search(r"\.(CWDrainNode|CWNodeDeleted)$", entry.subject):
            drained |= {node for node in deeds.pods.values() if node.encode() in entry.content}
    ended = {
        each.name
        for each in audit.requests(USER)
        if each.resource in ("pods", "pods/eviction") and each.verb in ("create", "delete")
    }
    return sorted(name for name in ended & deeds.pods.keys() if deeds.pods[name] not in drained)
