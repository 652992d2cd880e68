"""Snapshots of any content: loaded as what was saved, or refused, and never half understood."""

import json
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fuzz.bounded import bounded
from fuzz.corpus import randoms
from nodepool.engine.snapshot import dump, load
from nodepool.nats.objects.snapshots import Manifest
from nodepool.service import AnyService
from support.hostile.contents import garbled, mutated
from support.replay import run_scenario
from support.services import services

MANIFEST = {
    "id": "0123456789ab",
    "log": "l1",
    "chunks": 1,
    "bytes": 20,
    "committed": 7,
    "expected_sequence": 9,
    "sha256": "0" * 64,
}


@cache
def _saved() -> dict[str, list[bytes]]:
    """The lines of every service's snapshot after a scenario in which each has much to do."""
    world = run_scenario().world
    return {host.service.name: list(dump(host.replica.safe)) for host in world.hosts}


def _damaged(random: Random, saved: list[bytes]) -> list[bytes]:
    """The lines with something wrong in some of them."""
    lines = list(saved)
    for _ in range(random.randint(1, 3)):
        at, right = random.randrange(len(lines)), json.loads(random.choice(saved))
        match random.randrange(7):
            case 0:
                del lines[at]
            case 1:
                lines.append(random.choice(saved))
            case 2:
                lines[at] = garbled(random, lines[at])
            case 3:
                other = json.loads(random.choice(saved))
                lines[at] = json.dumps([other[0], *right[1:]]).encode()
            case _:
                lines[at] = mutated(random, right)
    return lines


def _check(service: AnyService, lines: list[bytes], *, converts: bool = False) -> None:
    with bounded():
        try:
            folded = load(type(service.initial), lines, converts=converts)
        except ValueError:
            return
        again = list(dump(folded))

    assert load(type(service.initial), again) == folded


@pytest.mark.parametrize("service", services(), ids=lambda service: service.name)
@given(random=randoms)
def test_a_snapshot_with_something_wrong_in_it_is_loaded_or_refused(
    service: AnyService, random: Random
) -> None:
    _check(service, _damaged(random, _saved()[service.name]))


@pytest.mark.parametrize("service", services(), ids=lambda service: service.name)
@given(random=randoms)
def test_a_snapshot_with_any_schema_is_converted_or_refused(
    service: AnyService, random: Random
) -> None:
    # given the snapshot of a release with other classes or fields, or of no release
    first, *lines = _damaged(random, _saved()[service.name])
    schema = json.loads(_saved()[service.name][0])
    for _ in range(random.randint(1, 3)):
        entry = random.choice(schema[1])
        match random.randrange(4):
            case 0 if len(entry) > 1:
                del entry[random.randrange(1, len(entry))]
            case 1:
                entry.insert(random.randint(1, len(entry)), "spare: int")
            case 2:
                random.shuffle(entry)
            case _:
                first = mutated(random, schema)
    older = random.choice((first, json.dumps(schema).encode()))

    # when it is read, then it is converted or refused
    _check(service, [older, *lines], converts=True)
    _check(service, [older, *_saved()[service.name][1:]], converts=True)


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_lines_of_any_bytes_are_refused(lines: list[bytes]) -> None:
    for service in services():
        _check(service, lines)


@given(randoms, st.binary(max_size=100))
def test_a_manifest_of_any_content_is_read_or_refused(random: Random, raw: bytes) -> None:
    for content in (raw, mutated(random, MANIFEST)):
        with bounded():
            try:
                manifest = Manifest.model_validate_json(content)
            except ValidationError:
                continue

        assert manifest.id == MANIFEST["id"]
        assert 0 <= manifest.committed < 1 << 63


@pytest.mark.parametrize("service", services(), ids=lambda service: service.name)
def test_a_snapshot_is_loaded_as_it_was_saved(service: AnyService) -> None:
    lines = _saved()[service.name]

    folded = load(type(service.initial), lines)

    assert list(dump(folded)) == lines
