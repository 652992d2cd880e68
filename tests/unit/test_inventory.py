from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.samples import affinity_to, sample
from nodepool.contract.affinity import Affinity
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineReclaimed,
    MachineRepaired,
    MachineReturned,
    MachineStateChanged,
    MachineWiped,
)
from nodepool.contract.keys import MachineKey, machine_key, offering_key
from nodepool.contract.node_states import MachineState
from nodepool.placement.machines import RECLAIMED, TRIAGE, ZAP, Inventory, Machine, labels_of

ZONE, H100, A100 = "US-EAST-02A", "gd-8xh100ib-i128", "gd-8xa100-i128"
LEAF = "ib.coreweave.cloud/leafgroup"
H100S, A100S = offering_key(ZONE, H100), offering_key(ZONE, A100)
UNKNOWN = offering_key("nowhere", "nothing")


def added(name: str, instance_type: str = H100, leaf: str = "") -> MachineAdded:
    """A new machine, in a leaf group where one is given."""
    labels = {LEAF: leaf} if leaf else {}
    return sample(MachineAdded, zone=ZONE, machine=name, instance_type=instance_type, labels=labels)


def stock(*names: str) -> Inventory:
    """An inventory with these machines, free, in this order."""
    inventory = Inventory()
    for name in names:
        inventory = inventory.fold_change(added(name))
    return inventory


def key(name: str) -> MachineKey:
    """The key of a machine."""
    return machine_key(ZONE, name)


def free(inventory: Inventory, affinity: Affinity | None = None) -> list[str]:
    """The names of the free machines that fit, longest free first."""
    line = inventory.line(H100S)
    keys = line.take(affinity, sum(line.fitting(affinity).values()))
    return [inventory.machines[key].name for key in keys]


def deleted(name: str, assignment: int, *, triage: bool = False) -> CWNodeDeleted:
    """A Node left its NodePool, in this stay of its machine."""
    return sample(CWNodeDeleted, zone=ZONE, node=name, assignment=assignment, triage=triage)


def repaired(name: str) -> MachineRepaired:
    """A machine is in service again."""
    return MachineRepaired(zone=ZONE, machine=name)


def wiped(name: str, assignment: int) -> MachineWiped:
    """Nothing is left of this stay of a machine."""
    return MachineWiped(zone=ZONE, machine=name, assignment=assignment)


def not_wiped(name: str) -> MachineStateChanged:
    """The wipe of a machine has failed."""
    return MachineStateChanged(zone=ZONE, machine=name, state=MachineState.ZAP_FAIL, cause="broken")


def taken_out(name: str, assignment: int = 0) -> MachineStateChanged:
    """A machine, free since this stay, is out of service."""
    out = MachineState.TRIAGE
    return MachineStateChanged(
        zone=ZONE, machine=name, state=out, assignment=assignment, cause="it has no power"
    )


def reclaimed(name: str) -> MachineReclaimed:
    """An operator holds a machine back."""
    return MachineReclaimed(zone=ZONE, machine=name, instance_type=H100)


def unregistered(name: str, assignment: int) -> CWNodeRegistrationFailed:
    """A machine did not join its cluster, in this stay."""
    return sample(CWNodeRegistrationFailed, zone=ZONE, node=name, assignment=assignment)


def on_leaf(*values: str) -> Affinity:
    """An affinity to these leaf groups."""
    return affinity_to([(LEAF, "In", values)])


def test_new_machines_are_free_in_the_order_in_which_they_came() -> None:
    inventory = stock("b", "a", "c")

    assert free(inventory) == ["b", "a", "c"]
    assert inventory.stock(H100S).count == 3


def test_a_machine_that_is_added_again_stays_as_it_is() -> None:
    inventory = stock("a").assign(key("a"), "acme/prod/train", 1)

    assert inventory.fold_change(added("a", A100)) is inventory


def test_an_assigned_machine_is_held_and_no_longer_free() -> None:
    inventory = stock("a", "b").assign(key("a"), "acme/prod/train", 7)

    assert free(inventory) == ["b"]
    assert inventory.machines[key("a")] == Machine(ZONE, "a", H100, {}, "acme/prod/train", 7)


def test_a_machine_is_never_held_twice() -> None:
    inventory = stock("a").assign(key("a"), "acme/prod/train", 1)

    with pytest.raises(AssertionError, match="is held by acme/prod/train"):
        inventory.assign(key("a"), "other", 2)


def test_a_free_machine_that_its_provider_takes_out_is_free_again_once_it_is_repaired() -> None:
    inventory = stock("a", "b").fold_change(taken_out("a"))

    assert (inventory.machines[key("a")].holder, free(inventory)) == (TRIAGE, ["b"])
    assert inventory.stock(H100S).in_service == 1
    assert free(inventory.fold_change(repaired("a"))) == ["b", "a"]


def test_a_machine_that_a_nodepool_has_or_has_had_meanwhile_is_not_taken_out() -> None:
    held = stock("a").assign(key("a"), "acme/prod/train", 1)
    free_again = held.depart(deleted("a", 1))

    for inventory in (held, free_again):
        assert inventory.fold_change(taken_out("a")) is inventory
    assert free(free_again.fold_change(taken_out("a", 1))) == []


def test_a_machine_that_is_taken_out_while_it_is_held_back_is_out_once_it_is_returned() -> None:
    held = stock("a").fold_change(reclaimed("a")).fold_change(taken_out("a"))
    returned = MachineReturned(zone=ZONE, machine="a", instance_type=H100)

    back = held.fold_change(returned)

    assert [each.machines[key("a")].holder for each in (held, back)] == [RECLAIMED, TRIAGE]
    assert free(back) == []
    assert free(back.fold_change(repaired("a"))) == ["a"]
    assert free(held.fold_change(repaired("a")).fold_change(returned)) == ["a"]


def test_a_machine_is_held_by_whoever_got_it_before_the_allocator_heard_that_it_was_taken_out() -> (
    None
):
    """Other services hear first that the machine was taken out, as the log has it first."""
    inventory = stock("a", "b").fold_change(taken_out("a")).fold_change(taken_out("b"))

    inventory = inventory.assign(key("a"), "acme/prod/train", 1)
    inventory = inventory.fold_change(reclaimed("b"))

    assert [inventory.machines[key(name)].holder for name in "ab"] == ["acme/prod/train", RECLAIMED]
    assert [inventory.machines[key(name)].out for name in "ab"] == [False, True]


def test_a_machine_that_is_no_node_does_not_leave_a_nodepool_a_second_time() -> None:
    gone = stock("a").assign(key("a"), "acme/prod/train", 1).depart(deleted("a", 1))
    held_back = gone.fold_change(reclaimed("a"))
    in_triage = gone.fold_change(taken_out("a", 1))

    for inventory in (gone, held_back, in_triage):
        assert inventory.depart(deleted("a", 1)) is inventory


def test_the_machine_of_a_deleted_node_that_did_not_answer_goes_to_triage() -> None:
    held = stock("a", "b").assign(key("a"), "acme/prod/train", 1)

    inventory = held.depart(deleted("a", 1, triage=True))

    assert inventory.machines[key("a")].holder == TRIAGE
    assert free(inventory) == ["b"]


def test_a_released_machine_is_free_behind_those_that_were_free_before() -> None:
    inventory = stock("a", "b").assign(key("a"), "acme/prod/train", 1).depart(deleted("a", 1))

    assert free(inventory) == ["b", "a"]


def test_an_event_about_an_earlier_assignment_changes_nothing() -> None:
    inventory = (
        stock("a")
        .assign(key("a"), "acme/prod/train", 1)
        .depart(deleted("a", 1))
        .assign(key("a"), "acme/prod/serve", 2)
    )

    assert inventory.depart(deleted("a", 1)) is inventory
    assert inventory.depart(unregistered("a", 1)) is inventory


def test_a_machine_that_is_released_twice_keeps_its_first_place() -> None:
    once = stock("a", "b").assign(key("a"), "acme/prod/train", 1).depart(deleted("a", 1))

    assert once.depart(deleted("a", 1)) is once


def test_a_machine_in_triage_is_free_once_it_is_repaired() -> None:
    broken = stock("a").assign(key("a"), "acme/prod/train", 1).depart(unregistered("a", 1))

    assert (free(broken), broken.machines[key("a")].holder) == ([], TRIAGE)
    assert free(broken.fold_change(repaired("a"))) == ["a"]


def test_only_a_machine_in_triage_can_be_repaired() -> None:
    inventory = stock("a", "b").assign(key("a"), "acme/prod/train", 1)

    assert inventory.fold_change(repaired("a")) is inventory
    assert inventory.fold_change(repaired("b")) is inventory
    assert inventory.fold_change(repaired("unknown")) is inventory


def test_an_unknown_machine_is_neither_released_nor_put_into_triage() -> None:
    inventory = stock("a")

    assert inventory.depart(deleted("unknown", 1)) is inventory
    assert inventory.depart(unregistered("unknown", 1)) is inventory


def wiping(name: str) -> Inventory:
    """An inventory with one machine that is being wiped after its stay 2."""
    added_ = added(name).model_copy(update={"wipes": True})
    inventory = Inventory().fold_change(added_).assign(key(name), "acme/prod/train", 1)
    inventory = inventory.depart(deleted(name, 1)).fold_change(wiped(name, 1))
    return inventory.assign(key(name), "acme/prod/serve", 2).depart(deleted(name, 2))


def test_a_new_machine_that_will_be_wiped_is_free() -> None:
    inventory = Inventory().fold_change(added("a").model_copy(update={"wipes": True}))

    assert free(inventory) == ["a"]


def test_a_machine_is_free_once_it_has_been_wiped_after_its_last_stay() -> None:
    inventory = wiping("a")

    assert (free(inventory), inventory.machines[key("a")].holder) == ([], ZAP)
    assert free(inventory.fold_change(wiped("a", 2))) == ["a"]


@pytest.mark.parametrize("assignment", [0, 1, 3])
def test_the_wipe_after_another_stay_frees_no_machine(assignment: int) -> None:
    inventory = wiping("a")

    assert inventory.fold_change(wiped("a", assignment)) is inventory


def test_a_node_is_not_wiped_whatever_its_provider_says() -> None:
    inventory = wiping("a").fold_change(wiped("a", 2)).assign(key("a"), "acme/prod/train", 3)

    assert inventory.fold_change(wiped("a", 3)) is inventory
    assert free(inventory.depart(deleted("a", 3))) == []


def test_a_machine_that_is_being_wiped_stays_so_if_its_node_leaves_twice() -> None:
    inventory = wiping("a")

    assert inventory.depart(deleted("a", 2)) is inventory
    assert inventory.depart(deleted("a", 2, triage=True)) is inventory


def test_a_machine_in_triage_stays_there_when_it_is_wiped_and_is_free_after_its_repair() -> None:
    held = wiping("a").fold_change(wiped("a", 2)).assign(key("a"), "acme/prod/train", 3)
    broken = held.depart(unregistered("a", 3))

    inventory = broken.fold_change(wiped("a", 3))

    assert (free(inventory), inventory.machines[key("a")].holder) == ([], TRIAGE)
    assert free(inventory.fold_change(repaired("a"))) == ["a"]
    assert free(broken.fold_change(repaired("a"))) == []
    assert free(broken.fold_change(repaired("a")).fold_change(wiped("a", 3))) == ["a"]


def test_a_machine_whose_wipe_has_failed_is_wiped_again_after_its_repair() -> None:
    failed = wiping("a").fold_change(not_wiped("a"))

    again = failed.fold_change(repaired("a"))

    assert (failed.machines[key("a")].holder, again.machines[key("a")].holder) == (TRIAGE, ZAP)
    assert (free(again), free(again.fold_change(wiped("a", 2)))) == ([], ["a"])


def test_only_a_machine_that_is_being_wiped_fails_to_be() -> None:
    inventory = stock("a", "b").assign(key("a"), "acme/prod/train", 1)

    for name in ("a", "b", "unknown"):
        assert inventory.fold_change(not_wiped(name)) is inventory
        assert inventory.fold_change(wiped(name, 1)) is inventory


def test_each_type_in_each_zone_is_an_offering_of_its_own() -> None:
    inventory = stock("a").fold_change(added("b", A100))

    assert [inventory.machines[key(name)].offering for name in "ab"] == [H100S, A100S]
    assert [inventory.stock(offering).count for offering in (H100S, A100S, UNKNOWN)] == [1, 1, 0]
    assert inventory.line(UNKNOWN).take(None, 1) == []


def test_only_machines_that_satisfy_the_affinity_fit() -> None:
    inventory = Inventory()
    for name, leaf in (("a", "l-1"), ("b", "l-2"), ("c", "l-1")):
        inventory = inventory.fold_change(added(name, leaf=leaf))

    assert free(inventory, on_leaf("l-1")) == ["a", "c"]
    assert free(inventory, on_leaf("l-1", "l-2")) == ["a", "b", "c"]
    assert free(inventory, on_leaf("l-9")) == []


def test_a_machine_has_the_labels_of_its_type_its_zone_its_name_and_its_place() -> None:
    machine = stock().fold_change(added("g1", leaf="l-1")).machines[key("g1")]

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


def test_a_topology_label_cannot_replace_the_name_of_a_machine() -> None:
    machine = Machine(ZONE, "g1", H100, {"kubernetes.io/hostname": "g2"})

    assert labels_of(machine)["kubernetes.io/hostname"] == "g1"


# An inventory behaves as a list of free machines and a dictionary of holders.


@dataclass
class Model:
    """What an inventory stands for, in plain lists and dictionaries."""

    free: list[str] = field(default_factory=list)
    holders: dict[str, tuple[str, int]] = field(default_factory=dict)

    def change(self, what: str, name: str, assignment: int) -> None:
        """Makes one change."""
        holder, last = self.holders.get(name, ("", 0))
        match what:
            case "add" if name not in self.holders:
                self.holders[name] = ("", 0)
                self.free.append(name)
            case "assign" if name in self.free:
                self.free.remove(name)
                self.holders[name] = ("acme/prod/train", assignment)
            case "release" if holder and last == assignment:
                self.holders[name] = ("", last)
                self.free.append(name)
            case "triage" if holder and last == assignment:
                self.holders[name] = (TRIAGE, last)
            case "repair" if holder == TRIAGE:
                self.holders[name] = ("", last)
                self.free.append(name)


def changed(inventory: Inventory, what: str, name: str, assignment: int) -> Inventory:
    """An inventory after one change."""
    match what:
        case "add":
            return inventory.fold_change(added(name))
        case "assign":
            if name not in free(inventory):
                return inventory
            return inventory.assign(key(name), "acme/prod/train", assignment)
        case "release":
            return inventory.depart(deleted(name, assignment))
        case "triage":
            return inventory.depart(unregistered(name, assignment))
    return inventory.fold_change(repaired(name))


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
def test_a_machine_is_free_or_held_after_any_changes(changes: list[tuple[str, str, int]]) -> None:
    inventory, model = Inventory(), Model()

    for change in changes:
        inventory = changed(inventory, *change)
        model.change(*change)

    held = {m.name: (m.holder, m.assignment) for m in inventory.machines.values()}
    assert free(inventory) == model.free
    assert inventory.stock(H100S).count == len(model.free)
    assert held == model.holders


# The allocator folds its own outputs before it reads the reports that the log has before them. All
# other services read the log in order. They agree on each machine all the same.

Reports = list[tuple[str, int]]
"""Reports on a machine: each is on its last stay or, with 1, on the stay before."""
REPORTS = st.lists(
    st.tuples(
        st.sampled_from(
            ("taken out", "repaired", "wiped", "not wiped", "deleted", "given up", "unregistered")
        ),
        st.sampled_from((0, 0, 0, 1)),
    ),
    max_size=4,
)


def read(inventory: Inventory, reports: Reports, last: int) -> Inventory:
    """An inventory after reports on the machine `a`, whose last stay was `last` at the time."""
    for report, back in reports:
        stay = last - back
        match report:
            case "taken out":
                inventory = inventory.fold_change(taken_out("a", stay))
            case "repaired":
                inventory = inventory.fold_change(repaired("a"))
            case "wiped":
                inventory = inventory.fold_change(wiped("a", stay))
            case "not wiped":
                inventory = inventory.fold_change(not_wiped("a"))
            case "unregistered":
                inventory = inventory.depart(unregistered("a", stay))
            case _:
                inventory = inventory.depart(deleted("a", stay, triage=report == "given up"))
    return inventory


def decide(inventory: Inventory, what: str, last: int) -> Inventory:
    """An inventory after the allocator has assigned, held back or returned the machine `a`."""
    match what:
        case "assign":
            return inventory.assign(key("a"), "acme/prod/train", last + 1)
        case "hold back":
            return inventory.fold_change(reclaimed("a"))
    return inventory.fold_change(MachineReturned(zone=ZONE, machine="a", instance_type=H100))


@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(("assign", "hold back")), REPORTS, REPORTS), max_size=6),
)
def test_services_agree_on_a_machine_whatever_the_allocator_had_not_read_when_it_decided(
    wipes: bool, turns: list[tuple[str, Reports, Reports]]
) -> None:
    inventory = Inventory().fold_change(added("a").model_copy(update={"wipes": wipes}))

    for choice, unread, later in turns:
        machine = inventory.machines[key("a")]
        possible = {"": choice, RECLAIMED: "return"}.get(machine.holder)
        last = machine.assignment
        if possible is not None:
            own_first = read(decide(inventory, possible, last), unread, last)
            in_order = decide(read(inventory, unread, last), possible, last)
            assert own_first == in_order
            inventory = in_order
        inventory = read(inventory, later, inventory.machines[key("a")].assignment)


@given(st.permutations(["a", "b", "c"]))
def test_a_change_of_an_inventory_leaves_the_old_one_as_it_was(order: list[str]) -> None:
    inventory = stock(*order)
    kept = replace(inventory)

    inventory.assign(key("a"), "acme/prod/train", 1).depart(unregistered("a", 1))

    assert inventory == kept
    assert free(inventory) == order
