"""The status of a NodePool object.

See https://docs.coreweave.com/products/cks/reference/node-pool.
"""

from typing import Final

from aggregator.profiles import PROFILES_MAX
from contracts.schemas import Json
from nodepool.contract.conditions import ORDER
from nodepool.contract.grammar import LABEL_LIMIT, TEXT_LIMIT
from nodepool.contract.model import ReleaseTrain
from nodepool.contract.progress import RECONCILING, STALLED

MESSAGE_MAX: Final = 32768
"""As in the conditions of Kubernetes itself."""
PROFILE_MAX: Final = LABEL_LIMIT + 2 * TEXT_LIMIT + len(f"/:@{ReleaseTrain.LATEST}")
"""The most characters of an instance type with all fields of an image."""

_TYPES: Final = (*(each.__name__ for each in ORDER), RECONCILING, STALLED)


def _count(text: str) -> Json:
    return {"type": "integer", "format": "int32", "minimum": 0, "description": text}


def _text(text: str, most: int = 1024, **more: object) -> Json:
    return {"type": "string", "maxLength": most, "description": text, **more}


def _time(text: str) -> Json:
    return {"type": "string", "format": "date-time", "description": text}


def _object(text: str, properties: Json, **more: object) -> Json:
    return {"type": "object", "description": text, "properties": properties, **more}


_CONDITION: Final = _object(
    "One thing that is known of the NodePool.",
    {
        "type": _text(f"One of {', '.join(_TYPES)}.", 316),
        "status": {
            "type": "string",
            "enum": ["True", "False", "Unknown"],
            "description": "Whether it is so.",
        },
        "reason": _text("Why, in one word.", 1024),
        "message": _text("Why, in a sentence.", MESSAGE_MAX),
        "lastTransitionTime": _time("When its status changed last."),
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The generation of the spec that it is about.",
        },
    },
    required=["type", "status", "reason", "message", "lastTransitionTime"],
)

STATUS: Final = _object(
    "What is observed of the NodePool.",
    {
        "conditions": {
            "type": "array",
            "maxItems": 16,
            "description": "What is known of it, by type.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": _CONDITION,
        },
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The newest generation that every check has evaluated.",
        },
        "currentNodes": _count(
            "How many of its Nodes are in the cluster, without those of the control plane."
        ),
        "inProgress": _count(
            "How many Nodes were assigned to it that have not booted into the cluster yet."
        ),
        "grantedNodes": _count("How many Nodes quota allows it, where that is not its target."),
        "queuedNodes": _count("How many Nodes quota allows it that have no machine yet."),
        "awaitedSpotNodes": _count("How many Nodes wait for the preemption of others."),
        "queuePosition": _count("The position of its first Node that waits for a machine."),
        "machinesNeeded": _count("How many machines have to become free until it has all Nodes."),
        "missingNodes": _count("How many Nodes it lacked when Capacity was evaluated last."),
        "rackStatus": _object(
            "The counts in racks, of an instance type that comes in whole racks.",
            {
                "target": _count("How many racks it is to have."),
                "current": _count("How many whole racks it has."),
                "queued": _count("How many racks it waits for."),
            },
        ),
        "autoscaled": _object(
            "Where the autoscaler set the target.",
            {
                "message": _text("Why it did.", MESSAGE_MAX),
                "since": _time("When it did."),
            },
        ),
        "allocatedNodes": _count("Deprecated, replaced by inProgress."),
        "nodeProfile": _text("The profile that new Nodes boot with.", PROFILE_MAX),
        "otherNodeProfiles": {
            "type": "object",
            "maxProperties": PROFILES_MAX,
            "description": "How many of its Nodes were booted with each other profile.",
            "additionalProperties": {"type": "integer", "format": "int32", "minimum": 0},
        },
    },
    # A NodePool that no agent has seen is on its way: tools take one without this for current.
    default={"observedGeneration": 0},
)
