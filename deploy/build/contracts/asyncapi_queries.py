"""The queries of the gateway in the AsyncAPI document: requests with their answers."""

from collections.abc import Iterator, Mapping
from typing import Final

from contracts.schemas import REF, Json, close_schema, schemas_of
from nodepool.contract.door import QUERIES as SUBJECT
from nodepool.contract.queries import QUERIES
from nodepool.contract.reference import documentation

ANSWER: Final = "Answer"
_TEXT: Final[Json] = {"type": "string"}
_ANSWER: Final[Json] = {
    "description": "The answer to a query, or why it is refused.",
    "anyOf": [
        {
            "type": "object",
            "required": ["position"],
            "properties": {
                "position": {
                    "type": "integer",
                    "description": "The answer shows what the log has accepted up to there.",
                }
            },
        },
        {
            "type": "object",
            "required": ["reason", "error", "field", "fix"],
            "properties": {
                "reason": _TEXT,
                "error": {**_TEXT, "description": "What is wrong, as one sentence."},
                "field": {**_TEXT, "description": "The field to correct, or empty."},
                "fix": {**_TEXT, "description": "What to do."},
            },
        },
    ],
}
_PLAIN: Final = "application/json"
_REVISION: Final = "7b2d0459a1c4-41"
_EXAMPLES: Final[Mapping[str, Json]] = {
    "Get": {"kind": "nodepools", "cluster": "prod", "name": "train", "current": True},
    "List": {"kind": "nodes", "cluster": "prod", "labelSelector": "team=a", "limit": 500},
    "Watch": {"kind": "nodepools", "cluster": "prod", "since": _REVISION, "waitSeconds": 20},
    "Events": {"cluster": "prod", "pool": "train", "since": "2026-03-01T12:00:00Z"},
    "Messages": {"cluster": "prod", "names": ["CWNodeAssigned", "CWNodeDeleted"], "after": 41},
    "Audit": {"cluster": "prod", "pool": "train", "last": True},
    "Explain": {"cluster": "prod", "pool": "train", "current": True},
    "Moment": {"at": "2026-03-01T12:00:00Z"},
    "FindCapacity": {"selections": [{"instanceType": "gd-8xh100ib-i128", "count": 4}]},
    "Users": {},
}
_ANSWERS: Final[tuple[Json, ...]] = (
    {"position": 2228, "revision": _REVISION, "changes": []},
    {
        "reason": "NotFound",
        "error": "'train' is not among the nodepools of prod",
        "field": "name",
        "fix": "list the nodepools to see their names",
    },
)


def query_channels() -> Iterator[tuple[str, Json]]:
    """Yield the channel of each query, and the one on which the requester awaits the answer."""
    for name, kind in QUERIES.items():
        about, _ = documentation(kind.__doc__ or "")
        yield (
            _channel(name),
            {
                "address": f"{SUBJECT}.{{org}}.{name}",
                "summary": about.partition("\n\n")[0].replace("\n", " "),
                "messages": {_message(name): _reference("messages", _message(name))},
                "parameters": {"org": _reference("parameters", "org")},
                "tags": [{"name": "query"}],
            },
        )
    yield (
        "query-answer",
        {
            "address": None,
            "summary": "The inbox of the requester.",
            "messages": {ANSWER: _reference("messages", ANSWER)},
            "tags": [{"name": "query"}],
        },
    )


def query_operations() -> Iterator[tuple[str, Json]]:
    """Yield the operation of each query: the gateway receives it, and replies."""
    for name in QUERIES:
        channel = f"#/channels/{_channel(name)}"
        yield (
            f"gateway-receives-{name}",
            {
                "action": "receive",
                "channel": {"$ref": channel},
                "messages": [{"$ref": f"{channel}/messages/{_message(name)}"}],
                "reply": {
                    "channel": {"$ref": "#/channels/query-answer"},
                    "messages": [{"$ref": f"#/channels/query-answer/messages/{ANSWER}"}],
                },
                "tags": [{"name": "gateway"}],
                "bindings": {"$ref": "#/components/operationBindings/nats"},
            },
        )


def query_messages() -> Json:
    """Return the messages of the queries and of their answers."""
    definitions = schemas_of(QUERIES.values())
    return {
        **{
            _message(name): {
                "name": name,
                "contentType": _PLAIN,
                "payload": close_schema(definitions[name], definitions, REF),
                "examples": [{"payload": _EXAMPLES[name]}],
            }
            for name in QUERIES
        },
        ANSWER: {
            "name": ANSWER,
            "contentType": _PLAIN,
            "payload": _ANSWER,
            "examples": [{"payload": each} for each in _ANSWERS],
        },
    }


def _channel(name: str) -> str:
    return f"query-{name}"


def _message(name: str) -> str:
    return f"{name}Query"


def _reference(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}
