"""A real machine that has to be wiped, and on which people work, is out of service meanwhile."""

import pytest

from conformance.requests import deleted, stay_of
from flow.test_new_real_machines import NAME, boots_of, is_free
from flow.test_wipes_take_turns import a_new_rack
from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    SetQuota,
)
from nodepool.contract.commands_metal import MaintainMachine
from nodepool.contract.commands_spot import ReclaimCapacity
from nodepool.contract.events import (
    MachineCheckRequested,
    MachineRepaired,
    MachineStateChanged,
    MachineWiped,
    PreemptionPending,
)
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.contract.node_states import MachineState
from support.constants import CLUSTER, H100, ORG, ZONE
from support.real_machines import Site
from support.services import services

pytestmark = pytest.mark.usefixtures("zone_of_metal")


@pytest.mark.parametrize(
    "when", ["as a Node", "while it waits for its turn", "before it was booted for its wipe"]
)
def test_a_machine_in_maintenance_that_has_to_be_wiped_is_out_of_service_until_that_ends(
    when: str,
) -> None:
    # given a machine on which people work before it can be wiped
    site = Site()
    maintained = MaintainMachine(zone=ZONE, machine=NAME, reason="new fan")
    if when == "while it waits for its turn":
        server, wipes = a_new_rack(site)[0], 1
        site.tell(maintained)
    else:
        server, wipes = site.declare(NAME, wipes=True), 2
        site.settle(5)
        site.tell(stay_of(NAME))
        site.settle(3)
        both = deleted(stay_of(NAME)), maintained
        site.tell(*(both if when == "before it was booted for its wipe" else both[::-1]))
    site.run()

    # then it says at once that it is not being wiped, why, and when it will be
    (moved,) = site.said(MachineStateChanged)
    assert (moved.machine, moved.state, moved.cause) == (
        NAME,
        MachineState.ZAP_FAIL,
        "its wipe has failed: it could not begin; after the maintenance the machine is checked and "
        "wiped: it is in maintenance: new fan",
    )

    # and its power is not touched, however long people work, but for a request of before
    site.settle(1)
    requests = len(server.sent)
    site.settle(70)
    assert len(server.sent) == requests
    assert len(site.said(MachineStateChanged)) == 1

    # when their work has ended
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.settle(10)

    # then one check brings it to its wipe, and it is free
    assert [each.purpose for each in site.said(MachineCheckRequested)] == ["return"]
    assert len(site.said(MachineRepaired)) == 1
    assert boots_of(server).count("wipe") == wipes
    assert is_free(site)
    assert site.world.replay_differs() == []


def test_a_check_of_before_the_work_brings_no_machine_back() -> None:
    # given a machine of which a check is requested as the maintenance ends
    site = Site()
    server = site.declare(NAME, wipes=True)
    site.settle(5)
    site.tell(stay_of(NAME))
    site.settle(3)
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="new fan"), deleted(stay_of(NAME)))
    site.run()
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.run()
    assert len(site.said(MachineCheckRequested)) == 1

    # when people work again before it was read, for longer
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="new fan"))
    site.settle(60)
    assert site.said(MachineRepaired) == []
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.settle(10)

    # then another check comes before the machine is wiped and free
    assert len(site.said(MachineCheckRequested)) == 2
    assert boots_of(server).count("wipe") == 2
    assert is_free(site)


def test_a_wipe_that_runs_may_end_in_maintenance_and_its_machine_is_out_of_service() -> None:
    # given a machine that is wiped
    site = Site()
    server = site.declare(NAME, wipes=True)
    site.see(server)
    site.send()
    server.go_on()
    site.see(server)

    # when people begin to work on it, and its wipe ends all the same
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="new fan"))
    site.run()
    assert site.said(MachineStateChanged) == []
    site.end_wipe(server)

    # then it is wiped, and in no NodePool before their work has ended
    assert len(site.said(MachineWiped)) == 1
    states = [each.state for each in site.said(MachineStateChanged)]
    assert states == [MachineState.TRIAGE, MachineState.DEBUG]
    assert not is_free(site)
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, maintenance=False))
    site.settle(5)
    assert is_free(site)
    assert boots_of(server) == ["wipe"]


def test_a_wipe_that_does_not_end_in_maintenance_has_its_time_and_names_the_work() -> None:
    # given a machine that is wiped, on which people begin to work
    site = Site()
    server = site.declare(NAME, wipes=True, wipe_minutes=30)
    site.see(server)
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="new fan"))

    # when it was not wiped in its time
    site.wait(30 * 60 - 1)
    assert site.said(MachineStateChanged) == []
    site.wait(1)

    # then it is out of service, with the reason
    (moved,) = site.said(MachineStateChanged)
    assert (moved.state, moved.cause) == (
        MachineState.ZAP_FAIL,
        "its wipe has failed: it has not ended in 30 minutes; it is in maintenance: new fan",
    )


# NodePools and operators that wait for machines.


def a_cell(*names: str) -> Site:
    """Return a cell with these machines and a cluster that may have them."""
    site = Site(others=[each for each in services() if each.name != "metal"])
    site.world.send(RegisterCluster(org=ORG, cluster=CLUSTER, zone=ZONE))
    site.world.send(SetQuota(org=ORG, zone=ZONE, instance_type=H100, limit=len(names)))
    for name in names:
        site.declare(name, wipes=True)
    site.settle(8)
    return site


def apply(site: Site, pool: str, target: int, **spec: str) -> None:
    """Let a NodePool want some Nodes, and get them if it may."""
    site.world.send(
        ApplyNodePool(
            org=ORG,
            cluster=CLUSTER,
            pool=pool,
            metadata=ManifestMetadata(name=pool),
            spec=NodePoolSpec.model_validate({"instanceType": H100, "targetNodes": target, **spec}),
        )
    )
    site.settle(5)


@pytest.mark.parametrize("who", ["a default NodePool", "an operator"])
def test_nobody_waits_for_the_wipe_of_a_machine_in_maintenance(who: str) -> None:
    # given a machine on which people work when its NodePool is deleted, and a spot Node
    site = a_cell(NAME, "g000002")
    apply(site, "old", 1)
    apply(site, "spot", 1, computeClass="spot")
    site.tell(MaintainMachine(zone=ZONE, machine=NAME, reason="new fan"))
    site.world.send(DeleteNodePool(org=ORG, cluster=CLUSTER, pool="old"))
    site.settle(1)

    # when somebody needs a machine
    if who == "an operator":
        site.world.send(ReclaimCapacity(zone=ZONE, instance_type=H100, count=1))
    else:
        apply(site, "new", 1)
    site.settle(15)

    # then the spot Node gives way
    assert [each.node for each in site.said(PreemptionPending)] == ["g000002"]
