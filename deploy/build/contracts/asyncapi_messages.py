"""The messages of the AsyncAPI document: their envelopes, their data, and an example of each."""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from contracts.samples import NOON, SAMPLES
from contracts.schemas import REF, Json, close_schema, schemas_of
from nodepool.contract.events.kubernetes import KubernetesEvent
from nodepool.contract.keys import path_text
from nodepool.contract.log import CONTENT_TYPE
from nodepool.contract.messages import ID_MAX, Command, Message, Outcome, envelope_of
from nodepool.contract.reference import documentation
from nodepool.contract.tracing import STATE_MAX, TRACE_MAX

TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_ID: Final[Json] = {"type": "string", "minLength": 1, "maxLength": ID_MAX}
_ATTRIBUTES: Final[dict[str, Json]] = {
    "specversion": {"const": "1.0"},
    "id": _ID,
    "type": {"type": "string", "description": "The name of the message."},
    "source": {"type": "string", "description": "The service or the program that says it."},
    "subject": {"type": "string", "description": "What it is about: the identity, with slashes."},
    "time": {"type": "string", "format": "date-time"},
    "datacontenttype": {"type": "string"},
    "traceparent": {
        "type": "string",
        "maxLength": TRACE_MAX,
        "description": "The trace that it belongs to, see https://www.w3.org/TR/trace-context/.",
    },
    "tracestate": {"type": "string", "maxLength": STATE_MAX},
    "correlationid": {**_ID, "description": "The id of the command that everything began with."},
    "causationid": {**_ID, "description": "The id of the message that led to this one."},
    "causeposition": {"type": "integer", "description": "The position of that in the log."},
    "actor": {
        "type": "string",
        "description": "Who has sent the command that everything began with through the gateway,"
        " which writes it: organisation, user, role and address. Without it the command is the"
        " operator's; `-` in an event that follows from the command of another organisation.",
        "examples": ["acme;alice;editor;10.0.0.7"],
    },
    "data": {},
}
_SENT: Final[dict[str, Json]] = {
    "specversion": {"const": "1.0", "description": "Tells a CloudEvent from bare data."},
    "id": {
        **_ID,
        "description": "What everything that follows names as `correlationid`, and by which a"
        " command that is sent again is known. Without one it is that of the headers, or else the"
        " position in the log.",
    },
    "type": {"type": "string", "description": "The name of the command, as in its subject."},
    "source": {"type": "string", "description": "The program that sends it, for people."},
    **{name: _ATTRIBUTES[name] for name in ("subject", "time", "datacontenttype")},
    **{name: _ATTRIBUTES[name] for name in ("traceparent", "tracestate", "data")},
}
"""The attributes of a command; any other is ignored."""
_HEADERS: Final[Json] = {
    "type": "object",
    "properties": {
        "Content-Type": {"type": "string", "examples": [CONTENT_TYPE]},
        "Nats-Msg-Id": {
            **_ID,
            "description": "The id of a command without a `ce-id`. The server drops a message whose"
            " id it has seen shortly before on any subject, so that none is better.",
        },
        "ce-id": {**_ID, "description": "The id of a command that is sent as its bare data."},
        "ce-source": {"type": "string", "description": "Who sends a command as its bare data."},
        "traceparent": {"type": "string", "description": "As the attribute of this name."},
    },
}
_NUMBER: Final[Json] = {"type": "integer", "minimum": 0}
_TEXT: Final[Json] = {"type": "string"}
PLAIN: Final[Mapping[str, Json]] = {
    "Commit": {
        "description": "The end of a batch, and how far its service is.",
        "type": "object",
        "required": ["position", "outputs"],
        "properties": {
            "position": {**_NUMBER, "description": "Up to here all inputs are processed."},
            "outputs": {**_NUMBER, "description": "How many messages the batch has before it."},
            "follows": {**_NUMBER, "description": "The position of the service's last one."},
            "log": {**_TEXT, "description": "The identity of the log."},
            "skipped": {"type": "boolean", "description": "An operator passed the input over."},
        },
        "examples": [{"position": 2228, "outputs": 1, "follows": 2151, "log": "7b2d0459a1c4"}],
    },
    "DeadLetter": {
        "description": "An input that could not be processed, or an object that cannot be stored.",
        "type": "object",
        "required": ["position", "subject", "time", "field", "cause", "content"],
        "properties": {
            "position": {**_NUMBER, "description": "Where it lies in the log."},
            "subject": _TEXT,
            "time": {"type": "string", "format": "date-time"},
            "field": {**_TEXT, "description": "The field at fault; empty for the whole."},
            "cause": {**_TEXT, "description": "Why, in one sentence."},
            "content": {**_TEXT, "description": "How it begins."},
        },
        "examples": [
            {
                "position": 41,
                "subject": "np.evt.quota.acme.prod.train.QuotaChecked",
                "time": "2026-01-01T12:00:00+00:00",
                "field": "data.granted",
                "cause": "is required",
                "content": "{}",
            }
        ],
    },
}
"""The messages that are no CloudEvents, by name."""
_OBJECT: Final[Json] = {
    "description": "An object of the read model, as Kubernetes would show it.",
    "type": "object",
    "required": ["apiVersion", "kind", "metadata"],
    "properties": {
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": {
            "type": "object",
            "required": ["name", "resourceVersion"],
            "properties": {"name": _TEXT, "resourceVersion": _TEXT},
        },
        "spec": {"type": "object"},
        "status": {"type": "object"},
    },
}


def summary(kind: type[Message]) -> str:
    """Return the first paragraph of the documentation of a message."""
    return documentation(kind.__doc__ or "")[0]


def bare(name: str) -> str:
    """Return the description of a message that is no CloudEvent."""
    return str(PLAIN[name]["description"])


def example(message: Message) -> Json:
    """Return a sample message as it is published or stored."""
    name, is_command = type(message).__name__, isinstance(message, Command)
    speaker = "validator" if isinstance(message, Outcome) else getattr(message, "speaker", "")
    envelope = envelope_of(type(message)).model_construct(
        id="order-17" if is_command else f"41.{speaker}.0",
        type=name,
        source="shop" if is_command else speaker,
        subject=path_text(message.path),
        time=NOON,
        traceparent=TRACE,
        data=message,
    )
    if not is_command:
        caused = {"correlationid": "order-17", "causationid": "order-17", "causeposition": 41}
        envelope = envelope.model_copy(update=caused)
    content: Json = json.loads(envelope.encode())
    return content


def components_of(kinds: Iterable[type[Message]]) -> Json:
    """Return the messages and schemas of the document."""
    kinds = list(kinds)
    definitions = schemas_of(kinds)
    commands = {kind.__name__ for kind in kinds if issubclass(kind, Command)}
    schemas: Json = {
        name: close_schema(schema, definitions, REF) if name in commands else schema
        for name, schema in definitions.items()
        if name in commands or _is_held(name, definitions, commands)
    }
    return {
        "messages": {
            **{kind.__name__: message_of(kind) for kind in kinds},
            **{name: _plain(name, schema) for name, schema in PLAIN.items()},
            "Object": _plain("Object", _OBJECT),
        },
        "schemas": {**schemas, **_ENVELOPES, "Headers": _HEADERS},
        "correlationIds": {
            "command": {
                "description": "The id of the command that everything began with.",
                "location": "$message.payload#/correlationid",
            }
        },
    }


def _is_held(name: str, definitions: Mapping[str, Json], commands: Iterable[str]) -> bool:
    """Whether an event refers to a schema, or is one: those of commands hold no references."""
    pending = [each for each in definitions if _is_message(each) and each not in commands]
    seen: set[str] = set()
    while pending:
        current = pending.pop()
        if current not in seen:
            seen.add(current)
            pending += _references(definitions[current])
    return name in seen


def _is_message(name: str) -> bool:
    return any(type(sample).__name__ == name for sample in SAMPLES)


def _references(schema: object) -> list[str]:
    if isinstance(schema, list):
        return [name for each in schema for name in _references(each)]
    if not isinstance(schema, dict):
        return []
    own = [str(schema["$ref"]).removeprefix(REF)] if "$ref" in schema else []
    return own + [name for each in schema.values() for name in _references(each)]


_EVENT, _COMMAND = "CloudEvent", "CloudEventOfCommand"
_FORMAT: Final = "A CloudEvent 1.0 in structured JSON, see https://github.com/cloudevents/spec"
_ENVELOPES: Final[Json] = {
    _EVENT: {
        "description": f"{_FORMAT}.",
        "type": "object",
        "required": ["specversion", "id", "type", "source", "data"],
        "properties": _ATTRIBUTES,
    },
    _COMMAND: {
        "description": f"{_FORMAT}. What a sender leaves out is made up for.",
        "type": "object",
        "required": ["specversion"],
        "properties": _SENT,
    },
}


def message_of(kind: type[Message]) -> Json:
    """Return the entry of a message class in the document."""
    name = kind.__name__
    own: Json = {"type": {"const": name}, "data": {"$ref": f"{REF}{name}"}}
    is_command = issubclass(kind, Command)
    parts: Json = {"properties": own}
    if is_command and any(field.is_required() for field in kind.model_fields.values()):
        parts = {"required": ["data"], **parts}
    envelope = _COMMAND if is_command else _EVENT
    whole: Json = {"allOf": [{"$ref": f"{REF}{envelope}"}, parts]}
    shown = [sample for sample in SAMPLES if type(sample) is kind]
    made: Json = {
        "name": name,
        "title": kind.reason if issubclass(kind, KubernetesEvent) else name,
        "summary": summary(kind),
        "contentType": CONTENT_TYPE,
        "headers": {"$ref": f"{REF}Headers"},
        "payload": {"anyOf": [whole, {"$ref": f"{REF}{name}"}]} if is_command else whole,
        "examples": [{"payload": example(sample)} for sample in shown],
    }
    if not is_command:
        made["correlationId"] = {"$ref": "#/components/correlationIds/command"}
    return made


def _plain(name: str, schema: Mapping[str, object]) -> Json:
    payload = {key: value for key, value in schema.items() if key != "examples"}
    shown = schema.get("examples")
    made: Json = {"name": name, "contentType": "application/json", "payload": payload}
    if isinstance(shown, list):
        made["examples"] = [{"payload": each} for each in shown]
    return made
