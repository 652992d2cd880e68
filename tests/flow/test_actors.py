"""Everything that follows from a command says who has sent it, to its organisation only."""

import json
from collections.abc import Iterator

import pytest

from nodepool.client.audit import user_of
from nodepool.contract.actors import WITHHELD, Actor
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    CWNodeDeleted,
    NodePoolAutoscaled,
)
from nodepool.contract.messages import Envelope, Message, OfMachine, OfPool
from support.constants import CLUSTER, H100, ORG
from support.paths import pool_path
from support.world_harness import WorldHarness

ALICE = Actor(ORG, "alice", "editor", "10.0.0.7").text
TRACE = "c0ffee" + "a" * 26
ULRICH = Actor("umbra", "ulrich", "owner", "10.9.9.9").text


def scale_as(world: WorldHarness, actor: str, pool: str, target: int, id: str = "by-alice") -> str:
    """Scales a NodePool, as the gateway stores the command of an actor; returns its id."""
    content = {"specversion": "1.0", "id": id, "source": "test", "actor": actor}
    content["traceparent"] = f"00-{TRACE}-{'b' * 16}-01"
    subject = ".".join(("np.cmd", *pool_path(pool), "ScaleNodePool"))
    world.publish(subject, json.dumps({**content, "data": {"targetNodes": target}}).encode())
    return id


def follows(world: WorldHarness, id: str) -> Iterator[Envelope[Message]]:
    """Every event that follows from a command."""
    return (each for each in world.envelopes() if each.correlationid == id)


def test_every_event_that_follows_from_a_scale_names_its_sender(world: WorldHarness) -> None:
    # given machines that take a while to boot, and a NodePool that the operator made
    world.given_data_center(boot_s=60)
    made = world.apply("train", 1)
    world.pass_time(minutes=5)

    # when alice scales it
    scaled = scale_as(world, ALICE, "train", 3)
    world.pass_time(minutes=5)

    # then the outcome and all that follows name alice, also after the machines have booted
    events = list(follows(world, scaled))
    assert {each.actor for each in events} == {ALICE}
    assert {"CommandAccepted", "CWNodeAssigned", "CWNodeRegistered"} <= {e.type for e in events}
    # and what the operator did names nobody
    assert {each.actor for each in follows(world, made)} == {None}


@pytest.mark.parametrize("target", [-1, 3], ids=["invalid", "missing"])
def test_a_refusal_names_the_sender_too(world: WorldHarness, target: int) -> None:
    world.given_data_center()

    scaled = scale_as(world, ALICE, "missing", target)

    (outcome,) = follows(world, scaled)
    assert isinstance(outcome.data, CommandRefused)
    assert outcome.actor == ALICE


def test_the_same_command_from_another_sender_is_answered_to_that_sender(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1)
    bob = Actor(ORG, "bob", "viewer", "10.0.0.8").text

    scale_as(world, ALICE, "train", 2, "c")
    scale_as(world, bob, "train", 2, "c")

    outcomes = [each for each in follows(world, "c") if isinstance(each.data, CommandAccepted)]
    assert [each.actor for each in outcomes] == [ALICE, bob]


def test_an_organisation_does_not_learn_who_of_another_one_takes_its_nodes(
    world: WorldHarness,
) -> None:
    # given spot Nodes of an organisation on every machine
    world.given_data_center(machines=2)
    world.given_cluster(CLUSTER, "umbra")
    world.given_quota(9, H100, org="umbra")
    world.apply("cheap", 2, computeClass="spot")
    world.apply(f"umbra/{CLUSTER}/serve", 0)

    # when a user of another organisation needs a machine
    scaled = scale_as(world, ULRICH, f"umbra/{CLUSTER}/serve", 1)
    world.pass_time(minutes=9)

    # then the events of the first organisation do not say who, nor anything that it has chosen
    about = [each for each in world.envelopes() if isinstance(each.data, OfPool)]
    own = [each for each in about if each.data.org == ORG]  # type: ignore[attr-defined]
    taken = [each for each in own if each.actor is not None]
    assert "PreemptionPending" in {each.type for each in taken}
    assert {each.actor for each in taken} == {each.correlationid for each in taken} == {WITHHELD}
    assert not [each for each in own if scaled.encode() in each.encode() or TRACE in str(each)]
    # and those of the sender's organisation do
    named = {each.actor for each in follows(world, scaled) if not isinstance(each.data, OfMachine)}
    assert named == {ULRICH}
    assert world.nodes(f"umbra/{CLUSTER}/serve") != []


def test_a_text_that_names_no_actor_of_the_organisation_is_not_passed_on(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1)

    scaled = scale_as(world, "root", "train", 2)

    assert {each.actor for each in follows(world, scaled)} == {WITHHELD}


def test_a_restarted_service_says_the_same(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    scale_as(world, ALICE, "train", 2)

    assert world.replay_differs() == []


@pytest.mark.parametrize("name", ["CordonNode", "DrainNode", "RebootNode", "PreemptNode"])
def test_a_node_of_another_organisation_is_refused_like_one_that_nobody_has(
    world: WorldHarness, name: str
) -> None:
    # given a Node of an organisation, and a NodePool of another one
    world.given_data_center(machines=4)
    world.given_cluster(CLUSTER, "umbra")
    world.given_quota(9, H100, org="umbra")
    world.apply("train", 1)
    world.apply(f"umbra/{CLUSTER}/serve", 1)
    world.pass_time(minutes=5)
    (foreign,) = world.nodes("train")

    # when a user of the other one names it, and what is nowhere
    refusals = []
    for node in (foreign, "n99"):
        id = world.command_node(name, f"umbra/{CLUSTER}/serve", node)
        (refusal,) = [each.data for each in follows(world, id) if each.type == "CommandRefused"]
        refusals.append(refusal.model_dump_json().replace(world.machine_name(node), "NODE"))

    # then both are refused with the same words
    assert refusals[0] == refusals[1]


def test_the_autoscaler_is_named_for_the_targets_that_it_sets_and_for_what_follows(
    world: WorldHarness,
) -> None:
    # given a NodePool that alice has scaled last, whose autoscaler is on
    world.given_data_center()
    world.apply("train", 1, autoscaling=True, minNodes=1, maxNodes=5)
    scaled = scale_as(world, ALICE, "train", 3)

    # when its Nodes have been idle for long enough
    world.pass_time(minutes=30)

    # then the autoscaler, and not alice, is named for the lower target and for the Nodes that left
    assert world.node_counts("train").current == 1
    by_alice = {each.type for each in follows(world, scaled)}
    begun = [each for each in world.envelopes() if isinstance(each.data, NodePoolAutoscaled)]
    assert begun
    assert all((each.correlationid, each.actor) == (each.id, "autoscaler") for each in begun)
    left = [each for each in world.envelopes() if isinstance(each.data, CWNodeDeleted)]
    assert {each.actor for each in left} == {"autoscaler"}
    assert by_alice.isdisjoint({"NodePoolAutoscaled", "CWNodeDeleted"})
    shown = {user_of(each.actor) for each in left}
    assert shown == {"autoscaler"}
