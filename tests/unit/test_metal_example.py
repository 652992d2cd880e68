"""The inventory that the page for operators begins with can be read as it stands."""

from pathlib import Path

from metal.host.inventory_file import read_inventory
from nodepool.contract.catalog import provider_of

EXAMPLE = Path(__file__).parents[2] / "deploy" / "metal" / "inventory.yaml"


def test_the_example_is_an_inventory_of_a_zone_of_real_machines_with_all_that_they_boot() -> None:
    inventory = read_inventory(EXAMPLE)

    machines = inventory.machines.values()
    assert {provider_of(each.zone) for each in machines} == {"metal"}
    assert {each.instance_type for each in machines} == {*inventory.wipes}
    assert {each.instance_type for each in machines} == {type_ for type_, *_ in inventory.boots}
