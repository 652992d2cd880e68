"""This release reads the snapshots of the last one: a trimmed log cannot make them again."""

import json

import pytest

from contracts.shapes import read_shapes, text
from nodepool.contract.services import EVERY
from nodepool.engine.conversion import Conversion
from nodepool.engine.schema import Schema
from nodepool.engine.snapshot import dump, load, schema_of
from nodepool.service import AnyService
from support.services import NAMES, services
from unit.test_snapshot import busy_world

RELEASE, SHAPES = read_shapes()
REMEDY = f"""A service could not start with its snapshot of release {RELEASE} once the log was
trimmed. Give a new field a default that is right for what was folded before. Keep the type, the
default and the name of a field or member, and add another beside it. See "Changing a state" in
services/ADDING.md.
"""


def faults(written: Schema, state: type) -> list[str]:
    """What this release cannot read, or could not read if it is used."""
    conversion = Conversion(written, state)
    return [*conversion.faults, *conversion.risks]


@pytest.mark.parametrize("service", services(*EVERY), ids=lambda service: service.name)
def test_the_snapshots_of_the_last_release_can_be_read(service: AnyService) -> None:
    # A service that the last release did not have has no snapshot of it.
    written = SHAPES.get(service.name, schema_of(type(service.initial)))

    found = faults(written, type(service.initial))

    assert found == [], "\n".join((*found, REMEDY))


@pytest.mark.parametrize("service", services(*EVERY), ids=lambda service: service.name)
def test_each_class_of_a_state_has_a_name_of_its_own(service: AnyService) -> None:
    # given the classes of a state, by which the next release finds its values
    shapes = {json.dumps(entry): entry[0] for entry in schema_of(type(service.initial))}

    names = sorted(shapes.values())

    assert names == sorted(set(names)), "rename a class before it is released"


@pytest.mark.parametrize("name", NAMES)
def test_a_busy_state_comes_back_from_the_snapshot_of_a_release_that_had_more(name: str) -> None:
    # given the snapshot of a busy service of a release with a class and a field that are gone
    world = busy_world().world
    (folded,) = (host.replica.safe for host in world.hosts if host.service.name == name)
    first, *lines = dump(folded)
    path, schema = json.loads(first)
    schema[0].append("spares: Map[str, Spare]")
    older = [path, [*schema, ["Spare", "count: int"]]]
    more = [["state.spares", "a", [1]], ["state.spares", "b", [2]]]
    lines = [json.dumps(line).encode() for line in (older, *more)] + lines

    # when this release reads it, then it has everything else
    assert load(type(folded.state), lines, converts=True) == folded


def test_the_shapes_are_written_as_they_are_read() -> None:
    written = json.loads(text())["services"]

    assert written == {each.name: schema_of(type(each.initial)) for each in services(*EVERY)}
