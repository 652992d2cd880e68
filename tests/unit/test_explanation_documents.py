"""The facts behind an explanation, as documents of the read model have them."""

import json
from collections.abc import Mapping
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.cordons import CORDON_REASON
from nodepool.explanation.documents import POOL_LABEL, facts
from nodepool.explanation.facts import Check, Facts, Limit, Machines, Peer
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.sentence import explain
from support.constants import H100, ZONE
from support.proposals import NOON

SINCE = "2026-01-01T12:00:00Z"
POOL: Mapping[str, object] = {
    "metadata": {"name": "train", "generation": 2, "resourceVersion": "90"},
    "spec": {
        "instanceType": H100,
        "targetNodes": 4,
        "computeClass": "spot",
        "lifecycle": {"scaleDownStrategy": "PreferIdle"},
    },
    "status": {
        "currentNodes": 1,
        "inProgress": 1,
        "grantedNodes": 3,
        "lostMachines": [{"name": "g7", "domain": "a"}],
        "conditions": [
            {
                "type": "Quota",
                "status": "False",
                "reason": "Over",
                "message": "too many",
                "lastTransitionTime": SINCE,
                "observedGeneration": 2,
                "logPosition": 40,
            },
            {"type": "Capacity", "status": "False", "observedGeneration": 1},
        ],
    },
}
NODE: Mapping[str, object] = {
    "metadata": {
        "name": "g1",
        "resourceVersion": "60",
        "creationTimestamp": SINCE,
        "labels": {POOL_LABEL: "train"},
        "annotations": {CORDON_REASON: "XIDErrors"},
    },
    "status": {
        "phase": "cordoned",
        "reboots": 3,
        "conditions": [
            {"type": "CWRegistered", "status": "True"},
            {
                "type": "CWActive",
                "status": "True",
                "message": "running: job",
                "lastTransitionTime": SINCE,
            },
            {"type": "XIDErrors", "status": "True", "lastTransitionTime": SINCE},
            {"type": "GPUMissing", "status": "False", "lastTransitionTime": SINCE},
            {
                "type": "CWNodeRemoval",
                "status": "True",
                "reason": "ScaleDown",
                "lastTransitionTime": "2026-01-01T12:01:00Z",
            },
        ],
        "rebootedFor": {"XIDErrors": "2026-01-01T11:00:01Z", "GPUMissing": SINCE},
        "progressed": SINCE,
        "blockingPods": [{"name": "job", "since": SINCE}],
        "blockingPodCount": 2,
    },
}
QUOTA = {"limit": 8, "used": 8, "resourceVersion": "41"}
CAPACITY = {"free": 1, "assigned": 2, "triage": 1, "resourceVersion": "51"}
MACHINE = {
    "metadata": {"name": "g9", "resourceVersion": "20"},
    "status": {"state": "Triage", "cause": "no boot"},
}
FAR = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")
"""Moments that have none in UTC."""
NAMES = ("metadata", "status", "spec", "conditions", "type", "limit", "used", "message", "name")
VALUES = ("Quota", "Over", "CWActive", "True", "False", "train", SINCE, "9" * 400, "\x1b[31m")
WORDS = st.sampled_from((*NAMES, "lastTransitionTime", "observedGeneration", *VALUES, *FAR))
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400) | st.text() | WORDS
)
ANY = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_every_fact_is_read_from_its_place() -> None:
    other = {**NODE, "metadata": {"name": "g2", "labels": {POOL_LABEL: "other"}}}
    free = {"metadata": {"name": "g8"}, "status": {"state": "Free"}}

    read = facts(
        POOL,
        zone=ZONE,
        nodes=[NODE, other],
        quota=QUOTA,
        capacity=CAPACITY,
        machines=[free, MACHINE],
        peers=[("prod/batch", POOL, [NODE]), ("prod/cpu", {"spec": {"instanceType": "cpu"}}, [])],
    )

    assert read == Facts(
        name="train",
        instance_type=H100,
        target=4,
        zone=ZONE,
        current=1,
        in_progress=1,
        granted=3,
        idle_only=False,
        spot=True,
        checks={"Quota": Check("Quota", "False", "Over", "too many", NOON, 40)},
        nodes=(
            NodeFacts(
                "g1",
                position=60,
                created=NOON,
                phase="cordoned",
                reboots=3,
                active=True,
                active_since=NOON,
                work="running: job",
                blocking=(("job", NOON),),
                blocking_count=2,
                removal="ScaleDown",
                removal_since=NOON + timedelta(minutes=1),
                progressed=NOON,
                problems=("XIDErrors",),
                problems_since=NOON,
                cordon="XIDErrors",
                relapsed=True,
            ),
        ),
        limit=Limit(8, 8, 41),
        machines=Machines(1, 2, 1, (("g9", "no boot", 20),), 51),
        peers=(
            Peer(
                "prod/batch",
                2,
                3,
                True,
                4,
                leaving=1,
                yields=False,
                keeps=1,
                waits_for_quota=True,
                position=90,
            ),
        ),
        generation=2,
        older={"Capacity": ""},
        lost={"a": 1},
        position=90,
    )


def test_a_deletion_is_seen_also_where_its_moment_is_none() -> None:
    read = facts({"metadata": {"deletionTimestamp": "soon"}})

    assert (read.deleting, read.deleting_since) == (True, None)


def test_what_is_missing_is_no_fact() -> None:
    assert facts({}) == facts(None) == facts([1]) == Facts("", "", 0)


@given(ANY, ANY, ANY, ANY, ANY)
def test_any_json_is_explained(
    pool: object, node: object, quota: object, capacity: object, machine: object
) -> None:
    read = facts(
        pool,
        nodes=[node],
        quota=quota,
        capacity=capacity,
        machines=[machine],
        peers=[("a/b", pool, [node])],
    )

    assert json.dumps(explain(read).document())


@given(st.sampled_from(["metadata", "spec", "status"]), ANY)
def test_any_part_of_a_nodepool_may_be_anything(part: str, value: object) -> None:
    pool = {**POOL, part: value}
    node = {**NODE, part: value}

    read = facts(pool, nodes=[node, NODE], quota=QUOTA, capacity=CAPACITY, machines=[MACHINE])

    assert explain(read).sentence.endswith(".")


@given(st.dictionaries(WORDS, ANY), ANY, ANY)
def test_any_condition_is_some_check_or_none(
    condition: Mapping[str, object], value: object, count: object
) -> None:
    shown = [{"type": "Quota", "observedGeneration": 2, "status": "False", **condition}, value]
    pool = {**POOL, "status": {"conditions": shown, "currentNodes": count}}

    assert explain(facts(pool, quota={"limit": count, "used": value})).sentence.endswith(".")
