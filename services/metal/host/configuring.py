"""The configuration of one boot, which a machine needs in addition to its image."""

import os

from metal.host.addresses import Addresses, report_path
from metal.host.managed import ManagedMachines
from metal.host.secret import read_secret
from metal.inventory.model import BootProfile
from metal.machine import Machine
from metal.power import find_boot
from nodepool.contract.keys import MachineKey, machine_parts, pool_path


def read_token(profile: BootProfile) -> str:
    """Return the join token of a profile; raise AccessError, which names its reference alone."""
    return read_secret("joinToken", profile.join_token, os.environ)


def build_config(
    key: MachineKey, machine: Machine, machines: ManagedMachines, addresses: Addresses
) -> dict[str, object] | None:
    """Return the configuration of the boot that is under way; None without a boot.

    Raise AccessError if its join token cannot be read. Only this answer contains the token.
    """
    boot_from, managed = find_boot(machine), machines.get(key)
    if not boot_from or managed is None or machines.inventory is None:
        return None
    zone, name = machine_parts(key)
    org, cluster, _ = pool_path(machine.stay.pool) if machine.stay is not None else ("", "", "")
    kind = managed.known.instance_type
    profile = machines.inventory.find_boot(boot_from, kind, org, cluster)
    if profile is None:
        return None
    config: dict[str, object] = {
        "zone": zone,
        "machine": name,
        "kernelArguments": profile.kernel_arguments,
    }
    if isinstance(profile, BootProfile):
        return config | {"org": org, "cluster": cluster, "joinToken": read_token(profile)}
    report = report_path(zone, name, machine.wipe, machine.number)
    return config | {"report": addresses.sign(report)}
