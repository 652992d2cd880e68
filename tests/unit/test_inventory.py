from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from nodepool.contract.events import MachineAdded
from nodepool.contract.model import ComputeClass, NodePoolSpec, SchedulingPriority
from nodepool.state.inventory import TRIAGE, Inventory, Machine, labels_of, offering, rank

ZONE, H100, A100 = "US-EAST-02A", "gd-8xh100ib-i128", "gd-8xa100-i128"
LEAF = "ib.coreweave.cloud/leafgroup"
H100S = f"{ZONE}/{H100}"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def added(name: str, instance_type: str = H100, **labels: str) -> MachineAdded:
    """A machine with its topology labels, `leaf` for the leaf group."""
    topology = {LEAF: labels["leaf"]} if labels else {}
    return MachineAdded(zone=ZONE, machine=name, instance_type=instance_type, labels=topology)


def stock(*names: str) -> Inventory:
    """An inventory with these machines, free, in this order."""
    inventory = Inventory()
    for name in names:
        inventory = inventory.add(added(name))
    return inventory


def key(name: str) -> str:
    """The key of a machine."""
    return f"{ZONE}/{name}"


def free(inventory: Inventory, affinity: Affinity | None = None) -> list[str]:
    """The names of the free machines that fit, longest free first."""
    return [found.rpartition("/")[2] for found in inventory.fitting(H100S, affinity)]


def on_leaf(*values: str) -> Affinity:
    """An affinity that asks for one of these leaf groups."""
    wanted = NodeSelectorRequirement(key=LEAF, operator="In", values=values)
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wanted,)),))
    return Affinity(
        node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector)
    )


def test_new_machines_are_free_in_the_order_in_which_they_came() -> None:
    inventory = stock("b", "a", "c")

    assert free(inventory) == ["b", "a", "c"]
    assert inventory.count(H100S) == 3


def test_a_machine_that_is_known_stays_as_it_is() -> None:
    inventory = stock("a").assign(key("a"), "acme/prod/train", 1)

    assert inventory.add(added("a", A100)) is inventory


def test_an_assigned_machine_is_held_and_no_longer_free() -> None:
    inventory = stock("a", "b").assign(key("a"), "acme/prod/train", 7)

    assert free(inventory) == ["b"]
    assert inventory.machines[key("a")] == Machine(ZONE, "a", H100, {}, "acme/prod/train", 7)


def test_a_machine_is_never_held_twice() -> None:
    inventory = stock("a").assign(key("a"), "acme/prod/train", 1)

    with pytest.raises(AssertionError, match="is held by acme/prod/train, not free for other"):
        inventory.assign(key("a"), "other", 2)


def test_a_machine_in_triage_is_not_given_away() -> None:
    inventory = stock("a").assign(key("a"), "acme/prod/train", 1).triage(key("a"), 1)

    with pytest.raises(AssertionError, match="is held by triage"):
        inventory.assign(key("a"), "other", 2)


def test_a_released_machine_is_free_behind_those_that_were_free_before() -> None:
    inventory = stock("a", "b").assign(key("a"), "acme/prod/train", 1).release(key("a"), 1)

    assert free(inventory) == ["b", "a"]


def test_what_is_said_of_an_earlier_stay_releases_nobody() -> None:
    inventory = (
        stock("a")
        .assign(key("a"), "acme/prod/train", 1)
        .release(key("a"), 1)
        .assign(key("a"), "acme/prod/serve", 2)
    )

    assert inventory.release(key("a"), 1) is inventory
    assert inventory.triage(key("a"), 1) is inventory


def test_a_release_that_is_said_twice_keeps_the_place_of_the_first() -> None:
    once = stock("a", "b").assign(key("a"), "acme/prod/train", 1).release(key("a"), 1)

    assert once.release(key("a"), 1) is once


def test_a_machine_in_triage_is_free_once_it_is_repaired() -> None:
    broken = stock("a").assign(key("a"), "acme/prod/train", 1).triage(key("a"), 1)

    assert (free(broken), broken.machines[key("a")].holder) == ([], TRIAGE)
    assert free(broken.repair(key("a"))) == ["a"]


def test_only_a_machine_in_triage_can_be_repaired() -> None:
    inventory = stock("a", "b").assign(key("a"), "acme/prod/train", 1)

    assert inventory.repair(key("a")) is inventory
    assert inventory.repair(key("b")) is inventory
    assert inventory.repair(key("unknown")) is inventory


def test_an_unknown_machine_leaves_nothing() -> None:
    inventory = stock("a")

    assert inventory.release(key("unknown"), 1) is inventory
    assert inventory.triage(key("unknown"), 1) is inventory


def test_each_type_of_each_zone_is_a_market_of_its_own() -> None:
    inventory = stock("a").add(added("b", A100))

    assert offering(ZONE, H100) == inventory.machines[key("a")].offering == H100S
    assert (inventory.count(H100S), inventory.count(offering(ZONE, A100))) == (1, 1)
    assert inventory.count("nowhere/nothing") == 0
    assert list(inventory.fitting("nowhere/nothing", None)) == []


def test_only_machines_that_satisfy_the_affinity_fit() -> None:
    inventory = Inventory()
    for name, leaf in (("a", "l-1"), ("b", "l-2"), ("c", "l-1")):
        inventory = inventory.add(added(name, leaf=leaf))

    assert free(inventory, on_leaf("l-1")) == ["a", "c"]
    assert free(inventory, on_leaf("l-1", "l-2")) == ["a", "b", "c"]
    assert free(inventory, on_leaf("l-9")) == []


def test_a_machine_carries_the_labels_of_its_type_its_zone_its_name_and_its_place() -> None:
    machine = stock().add(added("g1", leaf="l-1")).machines[key("g1")]

    assert labels_of(machine) == {
        "node.kubernetes.io/instance-type": H100,
        "node.kubernetes.io/type": H100,
        "node.coreweave.cloud/class": "gpu",
        "topology.kubernetes.io/region": "US-EAST-02",
        "topology.kubernetes.io/zone": ZONE,
        "kubernetes.io/arch": "amd64",
        "backend.coreweave.cloud/flavor": "infiniband",
        "kubernetes.io/hostname": "g1",
        LEAF: "l-1",
    }


def test_no_topology_label_makes_a_machine_another() -> None:
    machine = Machine(ZONE, "g1", H100, {"kubernetes.io/hostname": "g2"})

    assert labels_of(machine)["kubernetes.io/hostname"] == "g1"


# Who is served first.


def spec(compute_class: str = "default", priority: int | None = None) -> NodePoolSpec:
    """A wish of this class and priority."""
    scheduling = None if priority is None else SchedulingPriority(value=priority)
    return NodePoolSpec(
        instance_type=H100,
        target_nodes=1,
        compute_class=ComputeClass(compute_class),
        scheduling_priority=scheduling,
    )


def test_default_comes_before_spot_then_high_priority_then_who_came_first_then_the_name() -> None:
    later = NOON + timedelta(microseconds=1)
    ranks = {
        "urgent": rank(spec(priority=5), later, "z"),
        "first": rank(spec(), NOON, "y"),
        "its twin": rank(spec(priority=0), NOON, "z"),
        "late": rank(spec(), later, "a"),
        "patient": rank(spec(priority=-1), NOON, "a"),
        "urgent spot": rank(spec("spot", 2**31 - 1), NOON, "a"),
        "spot": rank(spec("spot"), NOON, "a"),
    }

    served = sorted(ranks, key=lambda name: ranks[name])

    assert served == list(ranks)


# An inventory behaves as a list of the free beside a table of who holds what.


@dataclass
class Model:
    """What an inventory stands for, in plain lists and dictionaries."""

    free: list[str] = field(default_factory=list)
    holders: dict[str, tuple[str, int]] = field(default_factory=dict)

    def happens(self, what: str, name: str, assignment: int) -> None:
        """Lets one thing happen."""
        holder, stay = self.holders.get(name, ("", 0))
        match what:
            case "add" if name not in self.holders:
                self.holders[name] = ("", 0)
                self.free.append(name)
            case "assign" if name in self.free:
                self.free.remove(name)
                self.holders[name] = ("acme/prod/train", assignment)
            case "release" if holder and stay == assignment:
                self.holders[name] = ("", stay)
                self.free.append(name)
            case "triage" if holder and stay == assignment:
                self.holders[name] = (TRIAGE, stay)
            case "repair" if holder == TRIAGE:
                self.holders[name] = ("", stay)
                self.free.append(name)


def after(inventory: Inventory, what: str, name: str, assignment: int) -> Inventory:
    """An inventory to which one thing happened."""
    match what:
        case "add":
            return inventory.add(added(name))
        case "assign":
            known = inventory.machines.get(key(name))
            holder = "acme/prod/train"
            fits = known is not None and not known.holder
            return inventory.assign(key(name), holder, assignment) if fits else inventory
        case "release":
            return inventory.release(key(name), assignment)
        case "triage":
            return inventory.triage(key(name), assignment)
    return inventory.repair(key(name))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("add", "assign", "release", "triage", "repair")),
            st.sampled_from(("a", "b", "c")),
            st.integers(1, 2),
        ),
        max_size=50,
    )
)
def test_a_machine_is_free_or_held_whatever_happens(story: list[tuple[str, str, int]]) -> None:
    inventory, model = Inventory(), Model()

    for event in story:
        inventory = after(inventory, *event)
        model.happens(*event)

    held = {m.name: (m.holder, m.assignment) for m in inventory.machines.values()}
    assert free(inventory) == model.free
    assert inventory.count(H100S) == len(model.free)
    assert held == model.holders


@given(st.permutations(["a", "b", "c"]))
def test_a_change_of_an_inventory_leaves_the_old_one_as_it_was(order: list[str]) -> None:
    inventory = stock(*order)
    kept = replace(inventory)

    inventory.assign(key("a"), "acme/prod/train", 1).triage(key("a"), 1)

    assert inventory == kept
    assert free(inventory) == order
