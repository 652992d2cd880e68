"""What Kubernetes allows as a name, a key or a value.

Each function returns why a text is not allowed, or None for one that is. The rules are those of
https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/.
"""

import re
from collections.abc import Mapping
from typing import Final

from nodepool.contract.keys import CONTROL_PLANE, FLEET

RESERVED_ORGS: Final = (CONTROL_PLANE, FLEET)
"""The names that no organisation may have: labels and subjects use them for something else."""

SUBDOMAIN_LIMIT: Final = 253
"""The most characters of a DNS subdomain."""

LABEL_LIMIT: Final = 63
"""The most characters of a DNS label, of the name part of a key, and of a label value."""

ANNOTATIONS_LIMIT_BYTES: Final = 256 * 1024
"""The most bytes of all keys and values of one object's annotations together."""

NODE_ANNOTATIONS_LIMIT_BYTES: Final = 192 * 1024
"""The most bytes of those that a NodePool gives its Nodes, with each key twice: one annotation of
a Node names them all, and what others annotate has to fit beside them."""

TEXT_LIMIT: Final = 1024
"""The most characters of a text that has no grammar of its own."""

TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""The effects that a taint can have."""

_SHOWN_LIMIT: Final = SUBDOMAIN_LIMIT + 1 + LABEL_LIMIT
_RESERVED_DOMAINS: Final = ("coreweave.cloud", "coreweave.com")
_PERMITTED_KEY: Final = "cks.coreweave.cloud/system-critical"

# Always used with fullmatch: a pattern that ends in `$` would let a final newline through.
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")
NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

_DNS_LABEL_RULE: Final = (
    "must be lower case letters, digits or '-', with a letter or digit at both ends"
    " (RFC 1123 label)"
)
_DNS_SUBDOMAIN_RULE: Final = (
    "must be lower case letters, digits, '-' or '.', with a letter or digit at both ends"
    " of every part (RFC 1123 subdomain)"
)
_NAME_RULE: Final = (
    "must be letters, digits, '-', '_' or '.', with a letter or digit at both ends"
    " (Kubernetes: Labels and Selectors)"
)


def organisation(name: str) -> str | None:
    """Return why a name is no name of an organisation; None if it may be."""
    if name in RESERVED_ORGS:
        return f"{name} is a reserved word, not an organisation"
    return dns1123_label(name)


def dns1123_label(name: str) -> str | None:
    """Return why `name` is no DNS label of 1 to 63 characters (RFC 1123), or None."""
    return _breach("name", name, _DNS_LABEL, _DNS_LABEL_RULE, LABEL_LIMIT)


def dns1123_subdomain(name: str) -> str | None:
    """Return why `name` is no DNS subdomain of 1 to 253 characters, or None.

    Only the length of the whole name is limited, not that of each part between dots.
    """
    return _breach("name", name, DNS_SUBDOMAIN, _DNS_SUBDOMAIN_RULE, SUBDOMAIN_LIMIT)


def pool_name(name: str) -> str | None:
    """Return why `name` cannot be a NodePool's: no DNS subdomain of 1 to 63 characters; or None.

    Each Node of the NodePool has the name as the value of a label, which holds 63 characters.
    """
    if LABEL_LIMIT < len(name) <= SUBDOMAIN_LIMIT:
        return (
            f"name has {len(name)} characters, more than the {LABEL_LIMIT} allowed; it becomes"
            " the value of a label of each Node (Kubernetes: Labels and Selectors)"
        )
    return dns1123_subdomain(name)


def qualified_name(key: str) -> str | None:
    """Return why `key` cannot be the key of a label, annotation or taint, or None.

    A key is a name of 1 to 63 characters, optionally after a DNS subdomain and a slash.
    """
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (
            "key has more than one '/'; it must be a name, optionally after a DNS prefix and"
            " one '/' (Kubernetes: Labels and Selectors)"
        )
    prefix_breach = (
        _breach("key prefix", prefix, DNS_SUBDOMAIN, _DNS_SUBDOMAIN_RULE, SUBDOMAIN_LIMIT)
        if slash
        else None
    )
    return prefix_breach or _breach("key name", name, NAME, _NAME_RULE, LABEL_LIMIT)


def label_value(value: str) -> str | None:
    """Return why `value` cannot be the value of a label, or None.

    A value is empty, or a name of at most 63 characters.
    """
    return _breach("value", value, NAME, _NAME_RULE, LABEL_LIMIT) if value else None


def taint_value(value: str) -> str | None:
    """Return why `value` cannot be the value of a taint, or None, by the rules of label values."""
    return label_value(value)


def taint_effect(effect: str) -> str | None:
    """Return why `effect` is no effect of a taint, or None."""
    if effect in TAINT_EFFECTS:
        return None
    return (
        f"effect {format_quoted(effect)} must be one of {', '.join(TAINT_EFFECTS)}"
        " (Kubernetes: Taints and Tolerations)"
    )


def text_length(text: str) -> str | None:
    """Return why a text that has no grammar of its own is too long, or None.

    Messages and statuses repeat such a text, and an object has to stay small enough to be stored.
    """
    if len(text) <= TEXT_LIMIT:
        return None
    return f"has {len(text)} characters, more than the {TEXT_LIMIT} allowed"


def annotations_size(annotations: Mapping[str, str]) -> str | None:
    """Return why the annotations are too large together, or None.

    All keys and values may take 256 KiB in UTF-8, as the Kubernetes API server counts them.
    """
    size = sum(_bytes(key) + _bytes(value) for key, value in annotations.items())
    if size <= ANNOTATIONS_LIMIT_BYTES:
        return None
    return (
        f"annotations take {size} bytes, more than the {ANNOTATIONS_LIMIT_BYTES} allowed"
        " (Kubernetes API validation)"
    )


def node_annotations_size(annotations: Mapping[str, str]) -> str | None:
    """Return why the annotations are too large together for each Node of a NodePool, or None."""
    size = sum(2 * _bytes(key) + _bytes(value) for key, value in annotations.items())
    if size <= NODE_ANNOTATIONS_LIMIT_BYTES:
        return None
    return (
        f"annotations take {size} bytes with each key twice, more than the"
        f" {NODE_ANNOTATIONS_LIMIT_BYTES} allowed of a Node, where one more annotation names them"
    )


def reserved_namespace(key: str) -> bool:
    """Return whether the platform reserves the prefix of the key, so that customers cannot set it.

    Reserved are `coreweave.cloud`, `coreweave.com` and their subdomains, in any case, with or
    without the final dot of DNS; the one exception is `cks.coreweave.cloud/system-critical`. See
    https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
    """
    if key == _PERMITTED_KEY:
        return False
    prefix, slash, _ = key.partition("/")
    domain = prefix.lower().rstrip(".")
    return bool(slash) and any(
        domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED_DOMAINS
    )


def format_quoted(text: str) -> str:
    """Return the text in quotes, for a reason; cut at the longest length that a key can have."""
    return repr(text if len(text) <= _SHOWN_LIMIT else f"{text[:_SHOWN_LIMIT]}…")


def _breach(what: str, text: str, pattern: re.Pattern[str], rule: str, limit: int) -> str | None:
    if not text:
        return f"{what} is empty; it {rule}"
    # Length first: it bounds both the matching and what a reason quotes.
    if len(text) > limit:
        return f"{what} has {len(text)} characters, more than the {limit} allowed; it {rule}"
    if not pattern.fullmatch(text):
        return f"{what} {text!r} {rule}"
    return None


def _bytes(text: str) -> int:
    # JSON can hold a lone surrogate, which strict UTF-8 cannot encode.
    return len(text.encode("utf-8", "surrogatepass"))
