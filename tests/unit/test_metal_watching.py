"""When the inventory file of real machines is read: as a whole, and never while it is written."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog

from metal.host.figures import Figures
from metal.host.inventory_file import read_inventory
from metal.host.watching import InventoryWatch
from metal.inventory.inventory import Inventory
from nodepool.host.page import MetricsPage
from unit.test_metal_inventory import RACK

FIRST, SECOND = RACK.split("  - name: m2")
BEGUN = f"{FIRST}---{SECOND.partition('---')[2]}"
"""A valid inventory of one machine: what a file may hold before the second one is written."""


@dataclass
class Watched:
    """A file, the watch over it, and how many machines each inventory had that was taken over.

    writes: what somebody writes into the file while it is read for the next time.
    """

    file: Path
    writes: str = ""
    taken: list[int] = field(default_factory=list)
    watch: InventoryWatch = field(init=False)

    def __post_init__(self) -> None:
        figures = Figures(MetricsPage().add({"service": "metal"}, lambda: ()))
        log = structlog.get_logger()
        self.watch = InventoryWatch(self.file, self.read, log, figures, self.take)

    def read(self, file: Path) -> Inventory:
        """The inventory in the file, which may change meanwhile."""
        found = read_inventory(file)
        if self.writes:
            file.write_text(self.writes)
            self.writes = ""
        return found

    def take(self, inventory: Inventory) -> None:
        """Note an inventory that is in force from now on."""
        self.taken.append(len(inventory.machines))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """A watch over a file that somebody has begun to write."""
    file = tmp_path / "inventory.yaml"
    file.write_text(BEGUN)
    return Watched(file)


async def test_a_file_that_is_being_written_is_read_once_it_is_whole(watched: Watched) -> None:
    await watched.watch.look()
    watched.file.write_text(RACK)
    await watched.watch.look()
    assert watched.taken == []

    await watched.watch.look()
    await watched.watch.look()
    assert (watched.taken, watched.watch.fault) == ([2], "")


async def test_a_file_that_changes_while_it_is_read_is_read_again(watched: Watched) -> None:
    watched.writes = RACK

    await watched.watch.look()
    await watched.watch.look()
    assert watched.taken == []

    await watched.watch.look()
    await watched.watch.look()
    assert watched.taken == [2]


async def test_a_fault_is_told_once_the_file_is_whole(watched: Watched) -> None:
    watched.file.write_text("kind: Rock")
    await watched.watch.look()
    assert watched.watch.fault == ""

    await watched.watch.look()
    assert "must be one of Rack, BootProfile, WipeProfile" in watched.watch.fault
    assert watched.taken == []
