"""The AsyncAPI document of the bus, made from the message classes and the services.

Its format is https://www.asyncapi.com/docs/reference/specification/v3.0.0; `make contracts` writes
it to `shared/asyncapi.yaml`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from contracts.asyncapi_messages import PLAIN, bare, components_of, summary
from contracts.asyncapi_queries import query_channels, query_messages, query_operations
from contracts.samples import message_classes
from contracts.schemas import Json
from contracts.services import load_services
from nodepool.contract.buckets import BUCKETS, PARTS
from nodepool.contract.log import CONTENT_TYPE
from nodepool.contract.messages import Command, Message, Outcome
from nodepool.contract.opening import COMMAND_BYTES_MAX
from nodepool.contract.services import DRIVERS, EDGES, EVERY
from nodepool.contract.subjects import template_of
from nodepool.host.version import version_of
from nodepool.service import commit_subject

ABOUT: Final = f"""\
Every message of one cell of the control plane. All lie in one JetStream stream, `NODEPOOL`, in one
order; the objects of the read model lie in key-value buckets beside it.

A command may be published by anyone whose permissions allow its subject, as a CloudEvent or as its
bare data, of at most {COMMAND_BYTES_MAX} bytes. Its outcome is `CommandAccepted` or
`CommandRefused`, which has the command's id as `correlationid`, as has all that follows from it.

A dot in a name is written `~` in a subject. Readers ignore fields that they do not know; a command
with one is refused. Nothing is ever renamed or reinterpreted.

An organisation reaches all this through the gateway. It replies to a command with `id` and
`position`, or with why the command is refused, and answers the queries."""
PARAMETERS: Final[dict[str, Json]] = {
    "org": {"description": "The organisation.", "examples": ["acme"]},
    "cluster": {"description": "The cluster of the organisation.", "examples": ["prod"]},
    "pool": {"description": "The NodePool.", "examples": ["train", "train~v1"]},
    "zone": {"description": "The zone of the machines.", "examples": ["US-EAST-02A"]},
    "machine": {"description": "The machine.", "examples": ["g34739a"]},
    "service": {"description": "The service.", "enum": list(EVERY)},
    "speaker": {
        "description": "The service that carries the command out.",
        "enum": sorted(
            service.name
            for service in load_services()
            if any(issubclass(kind, Command) for kind in service.inputs.values())
        ),
    },
    "name": {"description": "The name of the object in its bucket.", "examples": ["train"]},
}
_TAGS: Final = {
    "command": "Asks for a change.",
    "event": "A fact.",
    "outcome": "What became of a command.",
    "engine": "What the services keep the log by; of no use to other programs.",
    "read model": "An object as Kubernetes would show it.",
    "query": "A question to the gateway, which replies to it.",
}


def document() -> Json:
    """Return the whole AsyncAPI document."""
    kinds = sorted(message_classes().values(), key=_place)
    components = components_of(kinds)
    messages = components.pop("messages")
    assert isinstance(messages, dict), "the components hold messages by name"
    return {
        "asyncapi": "3.0.0",
        "id": "urn:nodepool:control-plane",
        "info": {
            "title": "nodepool",
            "version": version_of(),
            "description": ABOUT,
            "license": {
                "name": "Apache 2.0",
                "url": "https://www.apache.org/licenses/LICENSE-2.0",
            },
            "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": _SERVERS,
        "channels": {**dict(_channels(kinds)), **dict(query_channels())},
        "operations": {**dict(_operations()), **dict(query_operations())},
        "components": {
            "messages": {**messages, **query_messages()},
            **components,
            "parameters": PARAMETERS,
            "securitySchemes": _SECURITY,
            "operationBindings": {"nats": {"nats": {"bindingVersion": "0.1.0"}}},
        },
    }


_SECURITY: Final = {
    "password": {
        "type": "userPassword",
        "description": "A user with a password, in the address or in `NODEPOOL_PASSWORD_FILE`.",
    },
    "token": {
        "type": "apiKey",
        "in": "user",
        "description": "A token, in the place of a user or in `NODEPOOL_PASSWORD_FILE`.",
    },
    "nkey": {
        "type": "asymmetricEncryption",
        "description": "The seed of an nkey, in `NODEPOOL_NKEY_FILE`, which signs what is asked.",
    },
    "credentials": {
        "type": "asymmetricEncryption",
        "description": "A user's JWT and the seed of its nkey, in `NODEPOOL_CREDS_FILE`.",
    },
    "certificate": {
        "type": "X509",
        "description": "A client's certificate and its key, in `NODEPOOL_CERT_FILE` and"
        " `NODEPOOL_KEY_FILE`, alone or beside any of the others.",
    },
}
_SERVERS: Final[Json] = {
    "local": {
        "host": "localhost:4222",
        "protocol": "nats",
        "description": "What `nodepool up` starts, which asks for no password.",
    },
    "remote": {
        "host": "nats.example.org:4222",
        "protocol": "nats",
        "description": "A server that is reached over a network; the address begins with `tls://`.",
        "security": [{"$ref": f"#/components/securitySchemes/{scheme}"} for scheme in _SECURITY],
    },
}


def _place(kind: type[Message]) -> tuple[bool, str, str]:
    """Return where a message stands: commands first, then events by speaker."""
    return not issubclass(kind, Command), getattr(kind, "speaker", ""), kind.__name__


def _channels(kinds: Sequence[type[Message]]) -> Iterator[tuple[str, Json]]:
    for kind in kinds:
        tag = "command" if issubclass(kind, Command) else "event"
        tag = "outcome" if issubclass(kind, Outcome) else tag
        yield kind.__name__, _channel(template_of(kind), kind.__name__, summary(kind), tag)
    for name in PLAIN:
        subject = {"Commit": commit_subject("{service}"), "DeadLetter": "np.dead.{service}"}
        yield name, _channel(subject[name], name, bare(name), "engine")
    for bucket in BUCKETS:
        names = {2: ("zone", "name"), 3: ("org", "cluster", "name")}[PARTS[bucket]]
        if bucket == "clusters":
            names = ("org", "name")
        elif bucket == "quotas":
            names = ("org", "zone", "name")
        address = ".".join(("$KV", bucket, *(f"{{{name}}}" for name in names)))
        text = f"The objects of the bucket `{bucket}`."
        yield f"bucket-{bucket}", _channel(address, "Object", text, "read model")


def _channel(address: str, message: str, text: str, tag: str) -> Json:
    names = [name for name in PARAMETERS if f"{{{name}}}" in address]
    return {
        "address": address,
        "summary": text,
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
        "parameters": {name: {"$ref": f"#/components/parameters/{name}"} for name in names},
        "tags": [{"name": tag}],
    }


def _operations() -> Iterator[tuple[str, Json]]:
    """Yield the operations of the listed services in order, then of edges, drivers and buckets."""
    for service in load_services():
        for name in service.inputs:
            yield f"{service.name}-receives-{name}", _operation("receive", service.name, name, name)
        for name in service.outputs:
            yield f"{service.name}-sends-{name}", _operation("send", service.name, name, name)
        for name in PLAIN:
            yield f"{service.name}-sends-{name}", _operation("send", service.name, name, name)
    for name, kind in message_classes().items():
        if (speaker := getattr(kind, "speaker", "")) in (*EDGES, *DRIVERS.values()):
            yield f"{speaker}-sends-{name}", _operation("send", speaker, name, name)
    for bucket in BUCKETS:
        channel = f"bucket-{bucket}"
        yield f"aggregator-sends-{bucket}", _operation("send", "aggregator", channel, "Object")


def _operation(action: str, service: str, channel: str, message: str) -> Json:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{message}"}],
        "tags": [{"name": service}],
        "bindings": {"$ref": "#/components/operationBindings/nats"},
    }
