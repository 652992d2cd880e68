"""What Kubernetes allows as a name, a key, a value: a reason for each breach, None when fine."""

import re
from collections.abc import Mapping
from typing import Final

SUBDOMAIN_LIMIT: Final = 253
"""Characters in a DNS subdomain (Kubernetes: Object Names and IDs)."""

LABEL_LIMIT: Final = 63
"""Characters in a DNS label, a key's name or a label value (RFC 1123; Labels and Selectors)."""

ANNOTATIONS_LIMIT_BYTES: Final = 256 * 1024
"""Bytes of all keys and values of one object's annotations (Kubernetes API validation)."""

TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""The effects of a taint (Kubernetes: Taints and Tolerations)."""

_SHOWN_LIMIT: Final = SUBDOMAIN_LIMIT + 1 + LABEL_LIMIT
_RESERVED_DOMAINS: Final = ("coreweave.cloud", "coreweave.com")
_PERMITTED_KEY: Final = "cks.coreweave.cloud/system-critical"

# Always used with fullmatch: a pattern that ends in `$` would let a final newline through.
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

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


def dns1123_label(name: str) -> str | None:
    """Why `name` is no DNS label of 1 to 63 characters, or None (RFC 1123)."""
    return _breach("name", name, _DNS_LABEL, _DNS_LABEL_RULE, LABEL_LIMIT)


def dns1123_subdomain(name: str) -> str | None:
    """Why `name` is no DNS subdomain of 1 to 253 characters, or None.

    Kubernetes (Object Names and IDs) limits the whole name only, not each part between dots.
    """
    return _breach("name", name, _DNS_SUBDOMAIN, _DNS_SUBDOMAIN_RULE, SUBDOMAIN_LIMIT)


def qualified_name(key: str) -> str | None:
    """Why `key` cannot be the key of a label, annotation or taint, or None.

    A key is a name of 1 to 63 characters, optionally after a DNS subdomain and a slash
    (Kubernetes: Labels and Selectors).
    """
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (
            "key has more than one '/'; it must be a name, optionally after a DNS prefix and"
            " one '/' (Kubernetes: Labels and Selectors)"
        )
    prefix_breach = (
        _breach("key prefix", prefix, _DNS_SUBDOMAIN, _DNS_SUBDOMAIN_RULE, SUBDOMAIN_LIMIT)
        if slash
        else None
    )
    return prefix_breach or _breach("key name", name, _NAME, _NAME_RULE, LABEL_LIMIT)


def label_value(value: str) -> str | None:
    """Why `value` cannot be a label's value, or None; empty is fine.

    At most 63 characters of the alphabet of names (Kubernetes: Labels and Selectors).
    """
    return _breach("value", value, _NAME, _NAME_RULE, LABEL_LIMIT) if value else None


def taint_value(value: str) -> str | None:
    """Why `value` cannot be a taint's value, or None; the rule of `label_value`."""
    return label_value(value)


def taint_effect(effect: str) -> str | None:
    """Why `effect` is no taint effect, or None (Kubernetes: Taints and Tolerations)."""
    if effect in TAINT_EFFECTS:
        return None
    return (
        f"effect {shown(effect)} must be one of {', '.join(TAINT_EFFECTS)}"
        " (Kubernetes: Taints and Tolerations)"
    )


def annotations_size(annotations: Mapping[str, str]) -> str | None:
    """Why the annotations are too large together, or None.

    Keys and values, in bytes of UTF-8, may reach 256 KiB in all (Kubernetes API validation).
    """
    size = sum(_bytes(key) + _bytes(value) for key, value in annotations.items())
    if size <= ANNOTATIONS_LIMIT_BYTES:
        return None
    return (
        f"annotations take {size} bytes, more than the {ANNOTATIONS_LIMIT_BYTES} allowed"
        " (Kubernetes API validation)"
    )


def reserved_namespace(key: str) -> bool:
    """Whether the key's prefix belongs to the platform, so that a customer may not set it.

    True under `coreweave.cloud`, `coreweave.com` and every subdomain, in any case and with or
    without the DNS root's final dot; False for exactly `cks.coreweave.cloud/system-critical`.
    """
    if key == _PERMITTED_KEY:
        return False
    prefix, slash, _ = key.partition("/")
    domain = prefix.lower().rstrip(".")
    return bool(slash) and any(
        domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED_DOMAINS
    )


def shown(text: str) -> str:
    """The text in quotes for a reason, cut after the longest length any key may have."""
    return repr(text if len(text) <= _SHOWN_LIMIT else f"{text[:_SHOWN_LIMIT]}…")


def _breach(what: str, text: str, pattern: re.Pattern[str], rule: str, limit: int) -> str | None:
    if not text:
        return f"{what} is empty; it {rule}"
    # Length first: it bounds both the matching and the text quoted in a reason.
    if len(text) > limit:
        return f"{what} has {len(text)} characters, more than the {limit} allowed; it {rule}"
    if not pattern.fullmatch(text):
        return f"{what} {text!r} {rule}"
    return None


def _bytes(text: str) -> int:
    # JSON can carry a lone surrogate, which has no strict UTF-8 form.
    return len(text.encode("utf-8", "surrogatepass"))
