"""The declaration of a machine: what the inventory has of it, as an event of the log."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from metal.inventory.inventory import KnownMachine
from metal.machine import Declared
from nodepool.contract.catalog import rack_size
from nodepool.contract.events import MachineDeclared
from nodepool.placement.racks import NVLINK_DOMAIN

RACK: Final = "node.coreweave.cloud/rack"
RACK_NAME: Final = "ds.coreweave.com/physical-topology.rack-name"
SLOT: Final = "node.coreweave.cloud/slot"


def build_declaration(known: KnownMachine) -> MachineDeclared:
    """Return the declaration of a machine as the inventory has it now."""
    return MachineDeclared(
        zone=known.zone,
        machine=known.name,
        instance_type=known.instance_type,
        labels=_labels(known),
        wipes=known.wipes,
        wipe_minutes=known.wipe_minutes,
        digest=_digest(known),
        serial=known.expected.serial,
    )


def read_declaration(event: MachineDeclared) -> Declared:
    """Return a machine as an event declares it."""
    return Declared(
        event.instance_type,
        event.labels,
        event.wipes,
        event.wipe_minutes,
        event.digest,
        event.serial,
    )


def is_declared(declared: Declared | None, declaration: MachineDeclared) -> bool:
    """Return whether the log already has this declaration of a machine."""
    return declared is not None and _content(declared) == _content(declaration)


def _content(declared: Declared | MachineDeclared) -> tuple[object, ...]:
    labels = dict(declared.labels)
    ends = declared.wipes, declared.wipe_minutes
    return declared.instance_type, labels, *ends, declared.digest, declared.serial


def _labels(known: KnownMachine) -> Mapping[str, str]:
    """Return the topology labels of a machine; a rack of a rack-scale type is an NVLink domain."""
    labels = {RACK: known.rack, RACK_NAME: known.rack, SLOT: str(known.position)}
    return labels | ({NVLINK_DOMAIN: known.rack} if rack_size(known.instance_type) else {})


def _digest(known: KnownMachine) -> str:
    """Return a hash of the controller and the expected hardware of a machine."""
    place, expected = known.place, known.expected
    content = (
        (place.address, place.system, place.ca_file, place.fingerprint),
        (place.credentials.file, place.credentials.environment),
        # A field that is added later, and is not given, leaves the hash as it was.
        expected.model_dump(mode="json", exclude_defaults=True),
    )
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
