"""Reading the content of messages without the message models, which load slowly."""

import json
from collections.abc import Mapping

from nodepool.contract.log import Entry


def attributes_of(entry: Entry) -> Mapping[str, object]:
    """Return the JSON object that a message holds; empty if the content has another form."""
    try:
        content = json.loads(entry.content)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def data_of(entry: Entry) -> Mapping[str, object]:
    """Return the data of a CloudEvent; empty if the content has another form."""
    data = attributes_of(entry).get("data")
    return data if isinstance(data, dict) else {}
