"""Runs services whose zone has real machines: `python -m redfish.program metal --hurry`.

Nothing else differs from `python -m metal`, or from `python -m nodepool.host` for several services.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib import import_module
from types import ModuleType

from nodepool.contract import catalog
from support.constants import ZONE

HURRY, SHORT_BOOTS = "--hurry", "--short-boots"
EFFECT_S, CHECK_S = 12.0, 30.0
CALL_S, PARTS_S = 5, 25
"""How long a call may take; a request that could take longer than its effect is not sent."""
PAUSES = (timedelta(seconds=0.5), timedelta(seconds=1))
SILENT_AFTER, BOOT_MAX = timedelta(seconds=10), timedelta(seconds=15)


def zones_of_metal(zone: str = ZONE) -> Mapping[str, catalog.Zone]:
    """All zones, with one that belongs to `metal`."""
    return {**catalog.ZONES, zone: replace(catalog.ZONES[zone], provider="metal")}


def hurry() -> None:
    """Let all that takes minutes take seconds."""
    from metal import nodes, power, stays
    from metal.host import polling, settings, watching
    from metal.host.redfish.limits import Limits

    hurried = partial(
        Limits, call_s=CALL_S, parts_s=5 * CALL_S, pause_least_s=0.1, pause_most_s=0.5
    )
    set_all(power, EFFECT_S=EFFECT_S, SHUTDOWN_S=EFFECT_S, PAUSES=PAUSES)
    set_all(nodes, CHECK_S=CHECK_S)
    set_all(stays, SILENT_AFTER=SILENT_AFTER)
    set_all(polling, AWAITED_S=0.2, COMPLETE_S=3.0)
    set_all(watching, LOOK_S=0.1)
    set_all(settings, Limits=hurried)


def set_all(module: ModuleType, **values: object) -> None:
    """Give names of a module other values."""
    for name, value in values.items():
        assert hasattr(module, name), name
        setattr(module, name, value)


def main() -> None:
    """Run the services that are named."""
    set_all(catalog, ZONES=zones_of_metal())
    names = [each for each in sys.argv[1:] if not each.startswith("--")]
    if HURRY in sys.argv:
        hurry()
    if SHORT_BOOTS in sys.argv:
        set_all(import_module("metal.stays"), BOOT_MAX=BOOT_MAX)
    from nodepool.host.process import main as run

    run(*(import_module(f"{name}.__main__").HOSTED for name in names))


if __name__ == "__main__":
    main()
