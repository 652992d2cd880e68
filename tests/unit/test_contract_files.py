"""The AsyncAPI document and the schema of a manifest say what the classes say."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from contracts.asyncapi import document
from contracts.crd import crd
from contracts.files import ASYNCAPI, CRD, MANIFEST
from contracts.manifest_schema import manifest_schema
from contracts.samples import message_classes
from nodepool.contract.decode import decode
from nodepool.contract.messages import Command, Envelope, Event
from nodepool.contract.queries import QUERIES
from nodepool.contract.services import DRIVERS, EDGES, EVERY
from nodepool.contract.subjects import filters_of, template_of
from nodepool.nats.wire.access import Access
from support.services import services
from support.work import ROOT

KINDS = message_classes()
Document = Mapping[str, Any]


@pytest.fixture(scope="module")
def asyncapi() -> Document:
    """The document as it lies in the repository."""
    # The loader in C, where there is one, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    read: Document = yaml.load(ASYNCAPI.read_text(encoding="utf-8"), loader)
    return read


def test_the_asyncapi_document_is_that_of_the_classes(asyncapi: Document) -> None:
    assert asyncapi == json.loads(json.dumps(document())), "run `make contracts`"


def test_the_schema_of_a_manifest_is_that_of_the_classes() -> None:
    assert json.loads(MANIFEST.read_text(encoding="utf-8")) == manifest_schema(), (
        "run `make contracts`"
    )


def test_the_definition_of_a_node_pool_is_that_of_the_classes() -> None:
    assert yaml.safe_load(CRD.read_text(encoding="utf-8")) == crd(), "run `make contracts`"


def test_the_asyncapi_document_has_the_subject_of_every_message(asyncapi: Document) -> None:
    channels = asyncapi["channels"]

    addresses = {name: channels[name]["address"] for name in KINDS}

    assert addresses == {name: template_of(kind) for name, kind in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_subject_of_the_document_is_what_a_service_subscribes_to(kind: type[Command]) -> None:
    # given the template of a message's subject, and the filter with which services read it
    template = template_of(kind).split(".")
    filters = [filter.split(".") for filter in filters_of(kind)]

    # when each is taken apart
    # then they differ at most in what the filter leaves open, or the template: one of some speakers
    for tokens in filters:
        assert len(template) == len(tokens)
        assert [
            (ours, theirs)
            for ours, theirs in zip(template, tokens, strict=True)
            if theirs not in ("*", ours) and ours != "{speaker}"
        ] == []


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_example_of_the_asyncapi_document_is_a_message_that_we_read(
    asyncapi: Document, name: str
) -> None:
    # given the examples of a message as other programs see them
    message = asyncapi["components"]["messages"][name]
    payloads = [example["payload"] for example in message["examples"]]
    assert payloads != []

    # when they are stored on the subject that each is for
    for payload in payloads:
        tokens = [token.replace(".", "~") for token in payload["subject"].split("/")]
        prefix = ["np", "cmd"] if issubclass(KINDS[name], Command) else ["np", "evt"]
        speaker = [] if issubclass(KINDS[name], Command) else [payload["source"]]
        subject = ".".join((*prefix, *speaker, *tokens, name))
        envelope = decode(KINDS[name], subject, json.dumps(payload).encode(), {}, 42)

        # then each can be read
        assert isinstance(envelope, Envelope), envelope


@pytest.mark.parametrize("name", [name for name in KINDS if issubclass(KINDS[name], Command)])
def test_the_document_asks_for_just_what_a_command_is_refused_without(
    asyncapi: Document, name: str
) -> None:
    # given a command with all attributes, and what the document asks for
    message = asyncapi["components"]["messages"][name]
    payload = message["examples"][0]["payload"]
    whole, bare = message["payload"]["anyOf"]
    envelope = asyncapi["components"]["schemas"][whole["allOf"][0]["$ref"].rpartition("/")[2]]
    required = {*envelope["required"], *whole["allOf"][1].get("required", ())}
    tokens = [token.replace(".", "~") for token in payload["subject"].split("/")]
    subject = ".".join(("np", "cmd", *tokens, name))

    def is_read(content: object) -> bool:
        entry = json.dumps(content).encode()
        return isinstance(decode(KINDS[name], subject, entry, {}, 42), Envelope)

    # when it is sent without each of them, and as its bare data
    without = {
        each: {key: value for key, value in payload.items() if key != each} for each in payload
    }
    refused = {each for each, content in without.items() if not is_read(content)}

    # then it is refused without those, and only without those
    assert refused == required
    assert bare["$ref"].endswith(f"/{name}")
    assert is_read(payload["data"])


def test_the_document_has_a_way_for_each_file_that_a_connection_shows(asyncapi: Document) -> None:
    # given the settings that say who connects
    names = {name for name in Access.__slots__ if name.endswith("_file")} - {"ca_file"}
    shown = {f"NODEPOOL_{name.upper()}" for name in names}

    # when the document is asked for them
    schemes = asyncapi["components"]["securitySchemes"]
    named = re.findall(r"NODEPOOL_[A-Z]+_FILE", json.dumps(schemes))
    offered = [each["$ref"] for each in asyncapi["servers"]["remote"]["security"]]

    # then it has each of them, and a server may ask for any
    assert set(named) == shown
    assert offered == [f"#/components/securitySchemes/{name}" for name in schemes]


def test_the_operations_of_the_document_are_what_services_hear_and_say(asyncapi: Document) -> None:
    # given what the document says of each service
    operations: set[tuple[str, str, str]] = {
        (operation["tags"][0]["name"], operation["action"], operation["channel"]["$ref"])
        for operation in asyncapi["operations"].values()
    }

    # when it is compared with the services
    expected = {
        (service.name, action, f"#/channels/{name}")
        for service in services(*EVERY)
        for action, names in (("receive", service.inputs), ("send", service.outputs))
        for name in names
    }
    expected |= {
        (kind.speaker, "send", f"#/channels/{name}")
        for name, kind in KINDS.items()
        if issubclass(kind, Event) and kind.speaker in (*EDGES, *DRIVERS.values())
    }

    # then they are the same, but for what the engine stores of every service, the read model, and
    # the queries
    others = {channel.rpartition("/")[2] for _, _, channel in operations - expected}
    assert expected <= operations
    assert others - {"Commit", "DeadLetter"} == {
        name for name in asyncapi["channels"] if name.startswith(("bucket-", "query-"))
    } - {"query-answer"}


def test_the_document_has_each_query_as_the_gateway_takes_it(asyncapi: Document) -> None:
    # given the queries of the document
    channels = asyncapi["channels"]
    messages = asyncapi["components"]["messages"]

    # when they are compared with the classes
    fields = {
        name: {each.alias or each_name for each_name, each in kind.model_fields.items()}
        for name, kind in QUERIES.items()
    }

    # then each has the subject and the fields that the gateway knows, and no others
    assert {name: channels[f"query-{name}"]["address"] for name in QUERIES} == {
        name: f"np.api.{{org}}.{name}" for name in QUERIES
    }
    payloads = {name: messages[f"{name}Query"]["payload"] for name in QUERIES}
    assert {name: {*payload["properties"]} for name, payload in payloads.items()} == fields
    assert {payload["additionalProperties"] for payload in payloads.values()} == {False}


def test_each_example_manifest_names_the_schema_for_editors() -> None:
    first = "# yaml-language-server: $schema=../../shared/nodepool.schema.json"
    files = sorted((ROOT / "deploy" / "examples").glob("*.yaml"))

    assert files != []
    assert [file.name for file in files if file.read_text().splitlines()[0] != first] == []
