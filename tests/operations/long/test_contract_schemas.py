"""The AsyncAPI document and the schema of a manifest, as the programs of others read them."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from contracts.files import ASYNCAPI, MANIFEST
from contracts.samples import message_classes
from flow.test_manifests import ACCEPTED, REFUSED
from nodepool.client.manifests import ManifestError, parse_manifest
from nodepool.contract.decode import decode
from nodepool.contract.messages import Command, Envelope
from nodepool.contract.model import API_VERSION, KIND
from nodepool.contract.rules import find_fault
from nodepool.contract.subjects import address_of
from support.manifests import manifest
from support.node_tools import installed
from support.services import services
from support.work import ROOT
from support.world_harness import WorldHarness

TYPE = {"apiVersion": API_VERSION, "kind": KIND}
LEFT_TO_THE_CONTROL_PLANE = {
    "a target above its bounds",
    "a target below its bounds",
    "autoscaling by the rack",
    "the same taint twice",
}
"""The manifests of the corpus that are refused for what a schema cannot say."""
COMMANDS = [kind for kind in message_classes().values() if issubclass(kind, Command)]
Job = Mapping[str, object]


@pytest.fixture(scope="module")
def tools() -> Path:
    return installed("contract")


def checked(tools: Path, job: Job) -> Mapping[str, Any]:
    """What the tools find."""
    done = subprocess.run(
        ["node", "check.mjs"],
        cwd=tools,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def schema_errors(tools: Path, values: Sequence[object]) -> Sequence[str]:
    """What is wrong with each manifest by the schema; an empty text for nothing."""
    schema = json.loads(MANIFEST.read_text(encoding="utf-8"))
    found: Sequence[str] = checked(tools, {"schemas": [{"schema": schema, "values": values}]})[
        "schemas"
    ][0]
    return found


def is_taken(value: object) -> bool:
    """Whether command line and validator take a manifest."""
    try:
        return find_fault(parse_manifest(value, "")) is None
    except ManifestError:
        return False


# The AsyncAPI document.


MISTAKES = (
    # A reference to what there is not.
    ("'#/components/messages/AddMachines'", "'#/components/messages/AddMachine'"),
    # An action that operations do not have.
    ("  action: receive\n", "  action: hear\n"),
    # A keyword of a schema that has another type.
    ("maxLength: 256", "maxLength: long"),
)
"""Changes of the document, each of which is a fault."""


def read() -> Mapping[str, Any]:
    """The document."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: Mapping[str, Any] = yaml.load(ASYNCAPI.read_text(encoding="utf-8"), loader)
    return document


def misfits(tools: Path, by_name: Mapping[str, Sequence[object]]) -> Mapping[str, str]:
    """What is wrong with messages, by the schema that the document has for their names."""
    components = read()["components"]
    schemas = [
        {
            "schema": {
                "components": {"schemas": components["schemas"]},
                "allOf": [components["messages"][name]["payload"]],
            },
            "values": values,
        }
        for name, values in by_name.items()
    ]
    found = checked(tools, {"schemas": schemas})["schemas"]
    return {
        name: error for name, each in zip(by_name, found, strict=True) for error in each if error
    }


def test_asyncapis_own_parser_finds_no_fault_in_the_document_and_finds_those_put_in(
    tools: Path,
) -> None:
    # given the document, and copies in each of which something is wrong
    text = ASYNCAPI.read_text(encoding="utf-8")
    wrong = [text.replace(right, mistake, 1) for right, mistake in MISTAKES]
    assert text not in wrong

    # when the parser reads them
    right, *others = checked(tools, {"documents": [text, *wrong]})["documents"]

    # then it says nothing of the document but that there is a later version of the format
    assert [fault for fault in right if fault["code"] != "asyncapi-latest-version"] == []
    assert [number for number, faults in enumerate(others) if faults == right] == []


def test_every_example_of_the_document_fits_its_schema(tools: Path) -> None:
    # given the messages of the document
    messages = read()["components"]["messages"]

    # when each example is held to the schema of its message
    examples = {
        name: [example["payload"] for example in message.get("examples", [])]
        for name, message in messages.items()
    }

    # then it fits
    assert misfits(tools, examples) == {}
    assert [name for name, each in examples.items() if not each] == ["Object"]


def test_a_command_in_each_form_that_is_taken_fits_its_schema(tools: Path) -> None:
    # given commands as clients send them: whole, with as little as possible, and as bare data
    scaled, paths = {"targetNodes": 12}, "np.cmd.demo.demo.training"
    cloud_event = {"specversion": "1.0"}
    forms: Mapping[str, Sequence[object]] = {
        "ScaleNodePool": [
            scaled,
            {**cloud_event, "data": scaled},
            {**cloud_event, "id": "order-17", "data": scaled},
            {**cloud_event, "type": "ScaleNodePool", "source": "shop", "data": scaled, "x": 1},
        ],
        "DeleteNodePool": [{}, cloud_event, {**cloud_event, "data": {}}],
    }
    for name, values in forms.items():
        (kind,) = (kind for kind in COMMANDS if kind.__name__ == name)
        for value in values:
            content = json.dumps(value).encode()
            assert isinstance(decode(kind, f"{paths}.{name}", content, {}, 42), Envelope), value

    # when each is held to the schema of its name
    # then it fits, and one that is refused does not
    assert misfits(tools, forms) == {}
    wrong = [cloud_event, {}, {**cloud_event, "type": "Scale", "data": scaled}, {"target": 1}]
    for value in wrong:
        assert misfits(tools, {"ScaleNodePool": [value]}) != {}


def test_every_message_of_a_story_fits_its_schema_in_the_document(tools: Path) -> None:
    # given a pool of spot Nodes that is made, preempted, scaled and deleted
    world = WorldHarness(*services())
    world.given_data_center(machines=4)
    world.given_quota(4)
    world.apply("cheap", 2, computeClass="spot")
    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)
    world.apply("cheap", 1, nodeLabels={"team": "red"})
    world.delete("cheap")
    world.pass_time(minutes=1)

    # when each message of the log is held to the schema of its name
    by_name: dict[str, list[object]] = {}
    for entry in world.entries():
        address = address_of(entry.subject)
        name = address.name if address else "Commit"
        by_name.setdefault(name, []).append(json.loads(entry.content))

    # then it fits
    assert misfits(tools, by_name) == {}
    assert len(by_name) > 25


# The schema of a manifest.


def test_the_schema_refuses_what_the_control_plane_refuses_as_far_as_it_can(tools: Path) -> None:
    # given every manifest that the validator refuses in its own tests
    refused = {
        name: {**TYPE, **content}
        for name, (content, _) in REFUSED.items()
        if name != "another name than the subject's"  # A file has no subject.
    }
    assert [name for name, each in refused.items() if is_taken(each)] == []

    # when the schema is asked
    errors = schema_errors(tools, list(refused.values()))

    # then it lets those pass that it has no words for
    passed = {name for name, error in zip(refused, errors, strict=True) if not error}
    assert passed == LEFT_TO_THE_CONTROL_PLANE


def test_the_schema_accepts_what_is_accepted_and_every_example(tools: Path) -> None:
    # given the manifests of the tests, and those of the repository
    files = sorted((ROOT / "deploy" / "examples").glob("*.yaml"))
    values = [{**TYPE, **manifest(**spec)} for spec in ACCEPTED.values()] + [
        document for file in files for document in yaml.safe_load_all(file.read_text())
    ]

    # when the schema is asked
    errors = schema_errors(tools, values)

    # then it has no objection
    assert [error for error in errors if error] == []


FIELDS = sorted(
    json.loads(MANIFEST.read_text(encoding="utf-8"))["properties"]["spec"]["properties"].keys()
    - {"instanceType"}
)
TEXTS = st.sampled_from(
    ["", "a", "A.b", "a/b", "x.coreweave.cloud/a", "-", "spot", "Spot", "NoSchedule", "é", "a" * 64]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**31) | st.floats(0, 3) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(TEXTS, inner, max_size=2)
        | st.fixed_dictionaries(
            {"key": inner, "effect": inner}, optional={"value": inner, "operator": inner}
        )
    ),
    max_leaves=6,
)
RIGHT: Mapping[str, st.SearchStrategy[object]] = {
    "targetNodes": st.integers(-1, 3),
    "minNodes": st.none() | st.integers(-1, 2),
    "maxNodes": st.none() | st.integers(2, 3),
    "nodeLabels": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "nodeAnnotations": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "computeClass": TEXTS,
    "autoscaling": st.booleans(),
}
MANIFESTS = st.builds(
    lambda metadata, spec, name, value, wrong: {
        "metadata": {"name": "a", **metadata},
        "spec": {"instanceType": "a", "targetNodes": 1, **spec, **({name: value} if wrong else {})},
    },
    st.fixed_dictionaries(
        {},
        optional={
            "name": TEXTS,
            "labels": st.dictionaries(TEXTS, TEXTS, max_size=2),
            "annotations": st.dictionaries(TEXTS, TEXTS, max_size=2) | VALUES,
        },
    ),
    st.fixed_dictionaries({}, optional=dict(RIGHT)),
    st.sampled_from(FIELDS),
    VALUES,
    st.booleans(),
)
"""Manifests of which many are right, and others have one field at fault or more."""


def test_what_the_schema_refuses_the_control_plane_refuses_too(tools: Path) -> None:
    # given manifests of every kind, right and wrong
    values: list[object] = []

    @settings(
        max_examples=1_500,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(MANIFESTS)
    def generate(value: Mapping[str, object]) -> None:
        values.append({**TYPE, **value})

    generate()
    taken = [is_taken(value) for value in values]
    assert 100 < sum(taken) < 1_400

    # when the schema refuses one
    errors = schema_errors(tools, values)

    # then so does the control plane
    pairs = zip(values, errors, taken, strict=True)
    assert [(value, error) for value, error, is_right in pairs if error and is_right] == []
