"""Commands of any content: not JSON, without an envelope, of another subject, too large."""

import json

import pytest

from nodepool.contract.events import CommandRefused
from support.harness import Harness
from support.manifests import TRAIN, manifest
from support.world_harness import WorldHarness

ODD = {
    b"targetNodes: 3": "Invalid : the content is not JSON: ",
    b"": "Invalid : the content is not JSON: ",
    b"[]": "Invalid : the content is not a JSON object",
    b"3": "Invalid : the content is not a JSON object",
    b'{"specversion": "1.0", "data": 3}': "Invalid : input should be an object",
    b"\xff\xfe": "Invalid : the content is not JSON: ",
}


def test_content_that_is_not_a_json_object_is_refused(harness: Harness) -> None:
    harness.given_data_center()
    for number, (content, expected) in enumerate(ODD.items(), start=1):
        harness.publish("np.cmd.acme.prod.train.ApplyNodePool", content, f"odd-{number}")

        (outcome,) = harness.outcomes(f"odd-{number}")
        assert outcome.startswith(expected)
        assert harness.dead_letters() == ["validator: ApplyNodePool"] * number


def test_a_bare_manifest_is_accepted_without_an_envelope(harness: Harness) -> None:
    harness.given_data_center()

    harness.publish("np.cmd.acme.prod.train.ApplyNodePool", json.dumps(manifest()).encode())

    assert harness.node_counts("train") == (1, 0, 1)


def test_a_bare_scale_is_accepted_without_an_envelope(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    harness.publish("np.cmd.acme.prod.train.ScaleNodePool", b'{"targetNodes": 2}')

    assert harness.node_counts("train") == (2, 0, 2)


def test_content_about_another_organisation_than_its_subject_is_refused(harness: Harness) -> None:
    harness.given_data_center()
    harness.given_cluster("prod", org="umbrella")
    content = {**manifest(), "org": "umbrella"}

    command = harness.send("ApplyNodePool", TRAIN, content)

    assert harness.outcomes(command) == ["Invalid org: differs from the subject it was sent on"]
    assert harness.node_pool("train") is None
    assert harness.node_pool("umbrella/prod/train") is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"specversion": "1.0", "id": "x" * 300, "data": {}}, "the id has 300 characters"),
        ({"specversion": "1.0", "id": "x" * 600_000, "data": {}}, "the command has 600"),
        ({"targetNodes": 1, "z" * 5_000: 1}, "is not a known field"),
    ],
    ids=["long id", "more than is taken", "long name"],
)
def test_an_oversized_command_is_refused_by_a_small_message(
    world: WorldHarness, content: dict[str, object], expected: str
) -> None:
    world.given_data_center()
    before = len(world.entries())

    world.publish("np.cmd.acme.prod.train.ScaleNodePool", json.dumps(content).encode())

    messages = (envelope.data for envelope in world.envelopes())
    refusals = [message for message in messages if isinstance(message, CommandRefused)]
    assert [expected in refusal.message for refusal in refusals] == [True]
    assert max(len(entry.content) for entry in world.entries()[before + 1 :]) < 16_384
