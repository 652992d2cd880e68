"""How the settings of a stream, as the server describes them, differ from what is wanted."""

from collections.abc import Mapping, Sequence

from nodepool.contract.log import covers

_UNSET: Mapping[str, object] = {
    "retention": "limits",
    "discard": "old",
    "compression": "none",
    "duplicate_window": 120_000_000_000,
}
"""What the server reports for a setting that a configuration does not name; `has_settings` knows
that zero, -1 and what is empty also stand for a setting that is not named."""


def has_settings(config: object, wanted: Mapping[str, object]) -> bool:
    """Return whether the server would report no other settings after an update to `wanted`.

    config: the configuration in the server's description of the stream.
    """
    assert isinstance(config, dict), "a stream's info has its configuration"
    # A stream that is synced stays so; one that is not can have one copy only.
    names = {*config, *wanted} - {"metadata", "persist_mode"}
    if _own_metadata(config) != _own_metadata(wanted):
        return False
    return all(_setting(config, name) == _setting(wanted, name) for name in names)


def _setting(config: Mapping[str, object], name: str) -> object:
    value = config.get(name) or _UNSET.get(name)
    return None if value in (-1, {}, []) else value


def _own_metadata(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the metadata of a stream that the server has not added."""
    metadata = config.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return {key: text for key, text in found.items() if not key.startswith("_nats.")}


def intake_fault(
    config: Mapping[str, object], state: Mapping[str, object], subjects: Sequence[str]
) -> str:
    """Return why a stream takes no messages; "" if it takes them.

    config, state: the parts of these names in the server's description of the stream.
    subjects: the subjects that the stream must take.
    """
    if config.get("sealed"):
        return "it is sealed"
    own = config.get("subjects")
    own = [str(each) for each in own] if isinstance(own, list) else []
    missing = [subject for subject in subjects if not any(covers(each, subject) for each in own)]
    if missing:
        return f"its subjects lack {', '.join(missing)}"
    if config.get("discard") == "new":
        for limit, used in (("max_msgs", "messages"), ("max_bytes", "bytes")):
            most, count = config.get(limit), state.get(used)
            if isinstance(most, int) and isinstance(count, int) and 0 < most <= count:
                return f"its {limit} is {most}, and it holds {count}"
    return ""
