"""What the definition of a NodePool asks of a spec beyond types: bounds, and rules in CEL.

The sentences are those of the validator. A rule of a map cannot name a key as its field, and one
about a text need not repeat it: the API server prints both.
"""

from collections.abc import Iterable
from typing import Final

from contracts.schemas import Json
from nodepool.contract.affinity import EXPRESSIONS_MAX, TERMS_FIELD, TERMS_MAX, VALUES_MAX
from nodepool.contract.catalog import INSTANCE_TYPES, RACK_SIZE
from nodepool.contract.grammar import (
    ANNOTATIONS_LIMIT_BYTES,
    DNS_SUBDOMAIN,
    LABEL_LIMIT,
    NAME,
    NODE_ANNOTATIONS_LIMIT_BYTES,
    SUBDOMAIN_LIMIT,
    TAINT_EFFECTS,
)
from nodepool.contract.model import MANAGED_TAINTS
from nodepool.contract.well_known import (
    ANNOTATIONS,
    GRANTING_DOMAINS,
    GRANTING_LABELS,
    GRANTS_RIGHTS,
    LABELS,
    OWNED_LABELS,
    OWNED_PREFIXES,
    SET_BY_CONTROL_PLANE,
    SET_BY_KUBERNETES,
    TAINTS,
)

RESERVED: Final = "Namespaces `*.coreweave.cloud` or `*.coreweave.com` are not allowed."
LABEL_RULE: Final = (
    "must be letters, digits, '-', '_' or '.', with a letter or digit at both ends"
    " (Kubernetes: Labels and Selectors)"
)
KEY_RULE: Final = (
    "must be a name of 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at"
    " both ends, optionally after a DNS prefix and one '/' (Kubernetes: Labels and Selectors)"
)
LABELS_MAX: Final = 100
ANNOTATIONS_MAX: Final = 64
TAINTS_MAX: Final = 100
"""The most labels, annotations and taints of a spec; the API server limits what rules may cost."""
_KEY_MAX: Final = SUBDOMAIN_LIMIT + 1 + LABEL_LIMIT
_NAME: Final = NAME.pattern.replace("]*", f"]{{0,{LABEL_LIMIT - 2}}}")
_KEY: Final = f"({DNS_SUBDOMAIN.pattern}/)?{_NAME}"


def text(value: str) -> str:
    """Return a text as a CEL string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def rule(condition: str, message: str, field: str = "", reason: str = "") -> Json:
    """Return a validation rule; a message that begins with `=` is an expression."""
    kind = "messageExpression" if message.startswith("=") else "message"
    result: Json = {"rule": condition, kind: message.removeprefix("=")}
    if field:
        result["fieldPath"] = field
    if reason:
        result["reason"] = reason
    return result


def _rules(*rules: Json) -> Json:
    return {"x-kubernetes-validations": list(rules)}


def _matches(pattern: str) -> str:
    return f"self.matches({text(f'^{pattern}$')})"


def _texts(values: Iterable[str]) -> str:
    return f"[{', '.join(map(text, values))}]"


def _types(*, in_racks: bool) -> str:
    entries = INSTANCE_TYPES.values()
    names = sorted(each.id for each in entries if bool(each.rack_size) is in_racks)
    return _texts(names)


def _keys(flags: str = "") -> Json:
    """Return a rule that each key of a map is valid; the pattern limits the length of a name."""
    is_key = f"(k.indexOf('/') <= {SUBDOMAIN_LIMIT} && k.matches({text(f'{flags}^{_KEY}$')}))"
    message = f"='key ' + self.filter(k, !{is_key})[0] + {text(' ' + KEY_RULE)}"
    return rule(f"self.all(k, {is_key})", message)


_NOT_RESERVED: Final = rule(
    "self.all(k, k == 'cks.coreweave.cloud/system-critical' ||"
    r" !k.matches('(?i)^([^/]*\\.)?coreweave\\.(cloud|com)\\.*/'))",
    RESERVED,
    reason="FieldValueForbidden",
)


def _without(condition: str, why: str) -> Json:
    """Return a rule that the condition holds for no key `k` of a map."""
    found = f"self.filter(k, {condition})"
    message = f"='remove ' + {found}[0] + {text(f': {why}')}"
    return rule(f"{found}.size() == 0", message, reason="FieldValueForbidden")


def _without_keys(keys: Iterable[str]) -> Json:
    """Return a rule that no key of a map is one that Kubernetes sets."""
    return _without(f"k in {_texts(keys)}", SET_BY_KUBERNETES)


_OWNED: Final = " || ".join(
    (f"k in {_texts(OWNED_LABELS)}", *(f"k.startsWith({text(each)})" for each in OWNED_PREFIXES))
)
_GRANTING: Final = " || ".join(
    (
        f"k in {_texts(GRANTING_LABELS)}",
        *(
            f"k.startsWith({text(f'{each}/')}) || k.contains({text(f'.{each}/')})"
            for each in GRANTING_DOMAINS
        ),
    )
)


_IS_A_VALUE: Final = rule(_matches(f"({_NAME})?"), LABEL_RULE)
_IS_MANAGED: Final = " || ".join(
    f"self.key == {text(taint.key)} && self.effect == {text(taint.effect)}"
    for taint in MANAGED_TAINTS
)
_TARGET: Final = f"(has(self.targetNodes) ? self.targetNodes : self.targetRacks * {RACK_SIZE})"
_HAS_BOUNDS: Final = "has(self.minNodes) && has(self.maxNodes)"
_HAS_TARGET: Final = "(has(self.targetNodes) || has(self.targetRacks))"
_CLASS: Final = "(has({0}.computeClass) && {0}.computeClass != 'default')"

_SPEC: Final = (
    rule(f"self.autoscaling || {_HAS_TARGET}", "is required", ".targetNodes", "FieldValueRequired"),
    rule(
        "!has(self.targetNodes) || !has(self.targetRacks)",
        "cannot be given beside targetNodes; leave one of the two out",
        ".targetRacks",
    ),
    *(
        rule(
            f"!self.autoscaling || has(self.{name})",
            "is required while autoscaling is true",
            f".{name}",
            "FieldValueRequired",
        )
        for name in ("minNodes", "maxNodes")
    ),
    rule(
        f"!self.autoscaling || !({_HAS_BOUNDS}) || !{_HAS_TARGET} ||"
        f" self.minNodes <= {_TARGET} && {_TARGET} <= self.maxNodes",
        "='must lie between minNodes %d and maxNodes %d while autoscaling is true'"
        ".format([self.minNodes, self.maxNodes])",
        ".targetNodes",
    ),
    rule(
        f"!self.autoscaling || !(self.instanceType in {_types(in_racks=True)})",
        "='must be false: ' + self.instanceType + ' comes in whole racks'",
        ".autoscaling",
    ),
    rule(
        f"!has(self.targetRacks) || !(self.instanceType in {_types(in_racks=False)})",
        "='give targetNodes instead: ' + self.instanceType + ' does not come in racks'",
        ".targetRacks",
    ),
    rule(
        f"{_CLASS.format('self')} == {_CLASS.format('oldSelf')}",
        "ComputeClass cannot be changed",
        ".computeClass",
    ),
)

ADDITIONS: Final[dict[str, Json]] = {
    "spec": _rules(*_SPEC),
    "spec.instanceType": _rules(
        rule("self == oldSelf", "InstanceType cannot be changed"),
        rule(_matches(_NAME), LABEL_RULE),
    ),
    "spec.computeClass": {"enum": ["default", "spot", "Spot"]},
    "spec.nodeLabels": {
        "maxProperties": LABELS_MAX,
        **_rules(
            _keys(),
            _NOT_RESERVED,
            _without_keys(LABELS),
            _without(_OWNED, SET_BY_CONTROL_PLANE),
            _without(_GRANTING, GRANTS_RIGHTS),
        ),
    },
    "spec.nodeLabels{}": {"maxLength": LABEL_LIMIT, **_rules(_IS_A_VALUE)},
    "spec.nodeAnnotations": {
        "maxProperties": ANNOTATIONS_MAX,
        **_rules(
            # Kubernetes allows capitals in the prefix of an annotation.
            _keys("(?i)"),
            rule(
                f"self.map(k, k.size() + bytes(self[k]).size()).sum() <= {ANNOTATIONS_LIMIT_BYTES}",
                f"annotations take more than the {ANNOTATIONS_LIMIT_BYTES} bytes allowed"
                " (Kubernetes API validation)",
            ),
            rule(
                "self.map(k, 2 * k.size() + bytes(self[k]).size()).sum() <="
                f" {NODE_ANNOTATIONS_LIMIT_BYTES}",
                f"annotations take more than the {NODE_ANNOTATIONS_LIMIT_BYTES} bytes allowed of a"
                " Node with each key twice, where one more annotation names them",
            ),
            _without_keys(ANNOTATIONS),
        ),
    },
    "spec.nodeAnnotations{}": {"maxLength": ANNOTATIONS_LIMIT_BYTES},
    # As a map, a taint that is repeated is refused, and two appliers may own one each.
    "spec.nodeTaints": {
        "maxItems": TAINTS_MAX,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key", "effect"],
    },
    "spec.nodeTaints[]": _rules(
        rule(
            f"!({_IS_MANAGED})",
            f"='remove ' + self.key + ':' + self.effect + {text(f': {SET_BY_CONTROL_PLANE}')}",
            reason="FieldValueForbidden",
        ),
        rule(
            f"{_IS_MANAGED} || !(self.key in {_texts(TAINTS)})",
            f"='remove ' + self.key + ':' + self.effect + {text(f': {SET_BY_KUBERNETES}')}",
            reason="FieldValueForbidden",
        ),
    ),
    "spec.nodeTaints[].key": {
        "maxLength": _KEY_MAX,
        **_rules(rule(_matches(_KEY), KEY_RULE)),
    },
    "spec.nodeTaints[].value": {"maxLength": LABEL_LIMIT, **_rules(_IS_A_VALUE)},
    "spec.nodeTaints[].effect": {"enum": list(TAINT_EFFECTS)},
    TERMS_FIELD: {
        "maxItems": TERMS_MAX,
        "x-kubernetes-list-type": "atomic",
        **_rules(
            rule(
                "self.map(t, has(t.matchExpressions) ? t.matchExpressions.map(e,"
                f" has(e.values) ? e.values.size() : 0).sum() : 0).sum() <= {VALUES_MAX}",
                f"has more than the {VALUES_MAX} values allowed",
            )
        ),
    },
    f"{TERMS_FIELD}[].matchExpressions": {
        "maxItems": EXPRESSIONS_MAX,
        "x-kubernetes-list-type": "atomic",
    },
    f"{TERMS_FIELD}[].matchExpressions[].values": {
        "maxItems": VALUES_MAX,
        "x-kubernetes-list-type": "atomic",
    },
}
"""By the place in a manifest."""
