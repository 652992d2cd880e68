"""The form for a new NodePool: the typed values, their manifest, and an error for each field."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from console.view.commands import Shell, kubectl, nodepool
from console.view.model import Place
from nodepool.contract.grammar import pool_name
from nodepool.contract.model import API_VERSION, KIND, NODES_MAX
from nodepool.contract.rules import list_document_faults

TEXT_MAX: Final = 2_000
"""The most characters of a field."""
FIELDS: Final = (
    *("name", "cluster", "type", "class", "how", "target", "least", "most"),
    *("shrink", "labels", "taints"),
)
"""The fields of the form."""
USUAL: Final[Mapping[str, str]] = {
    "class": "default",
    "how": "fixed",
    "target": "2",
    "least": "0",
    "most": "8",
    "shrink": "IdleOnly",
}
SOUND: Final[Mapping[str, str]] = {
    "name": "name",
    "type": "type",
    "target": "0",
    "least": "0",
    "most": str(NODES_MAX),
}
"""The values that take the place of faulty ones while the other fields are checked. A faulty field
that is not listed here is checked as an empty field."""
PATHS: Final[Mapping[str, str]] = {
    "metadata.name": "name",
    "spec.instanceType": "type",
    "spec.computeClass": "class",
    "spec.targetNodes": "target",
    "spec.minNodes": "least",
    "spec.maxNodes": "most",
    "spec.autoscaling": "how",
    "spec.lifecycle": "shrink",
    "spec.nodeLabels": "labels",
    "spec.nodeTaints": "taints",
}
"""The field of the form for the beginning of a path in a manifest."""
NAME_RULE: Final = (
    "Use lower case letters, digits, “-” or “.”, with a letter or digit at both ends:"
    " for example nightly-eval."
)


@dataclass(frozen=True, slots=True)
class Form:
    """The typed values and their faults, by field; the fault of `""` is about no field."""

    values: Mapping[str, str]
    faults: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """Return the typed value of a field, or its default."""
        return self.values.get(name, USUAL.get(name, ""))

    @property
    def place(self) -> Place:
        """The NodePool that the form is about."""
        return Place(self.value("cluster"), self.value("name"))


def check_form(form: Form, clusters: Sequence[str]) -> Form:
    """Return a form with its faults that need no server: the first one of each field."""
    found = dict[str, str]()
    for name, fault in _faults(form, clusters):
        found.setdefault(name, fault)
    sound = Form({**form.values, **{name: SOUND.get(name, "") for name in found}})
    for name, fault in _rule_faults(sound):
        found.setdefault(name, fault)
    return Form(form.values, found)


def _rule_faults(form: Form) -> Iterator[tuple[str, str]]:
    """Yield what the server would refuse in a form, by the rules of the server."""
    for refusal in list_document_faults(build_manifest(form)):
        yield place_fault(refusal.field, form), refusal.message


def read_form(given: Mapping[str, str], clusters: Sequence[str]) -> Form:
    """Return the form as it was sent, with its faults that need no server."""
    values = {name: given[name].strip()[:TEXT_MAX] for name in FIELDS if name in given}
    values.setdefault("cluster", clusters[0] if clusters else "")
    return check_form(Form(values), clusters)


def _faults(form: Form, clusters: Sequence[str]) -> Iterator[tuple[str, str]]:
    name = form.value("name")
    if not name:
        yield "name", f"A NodePool needs a name. {NAME_RULE}"
    elif pool_name(name) is not None:
        yield "name", NAME_RULE
    if form.value("cluster") not in clusters:
        yield "cluster", "Choose one of your clusters."
    if not form.value("type"):
        yield "type", "Choose an instance type."
    for number in ("least", "most") if form.value("how") == "auto" else ("target",):
        if not _is_number(form.value(number)):
            yield number, f"Give a whole number from 0 to {NODES_MAX:,}, for example 4."
    least, most = form.value("least"), form.value("most")
    is_range = _is_number(least) and _is_number(most)
    if form.value("how") == "auto" and is_range and int(most) < int(least):
        yield "most", f"Give a maximum of at least {int(least):,}, the minimum."
    yield from _pair_faults(form)


def _pair_faults(form: Form) -> Iterator[tuple[str, str]]:
    for part in _list(form.value("labels")):
        if "=" not in part:
            yield "labels", f"{part!a} has no “=”: write name=value, for example team=research."
    for part in _list(form.value("taints")):
        if ":" not in part:
            example = "for example dedicated=eval:NoSchedule"
            yield "taints", f"{part!a} has no effect: write key=value:Effect, {example}."


def _is_number(text: str) -> bool:
    is_digits = text.isascii() and text.isdecimal() and len(text) <= len(str(NODES_MAX))
    return is_digits and int(text) <= NODES_MAX


def build_manifest(form: Form) -> dict[str, object]:
    """Return the manifest that the form describes, whether it is valid or not."""
    spec: dict[str, object] = {"instanceType": form.value("type")}
    if form.value("class") == "spot":
        spec["computeClass"] = "spot"
    if form.value("how") == "auto":
        spec["autoscaling"] = True
        spec["targetNodes"] = number_in(form.value("least"))
        spec["minNodes"] = number_in(form.value("least"))
        spec["maxNodes"] = number_in(form.value("most"))
    else:
        spec["targetNodes"] = number_in(form.value("target"))
    if form.value("shrink") == "PreferIdle":
        spec["lifecycle"] = {"scaleDownStrategy": "PreferIdle"}
    if labels := list_labels(form):
        spec["nodeLabels"] = labels
    if taints := list_taints(form):
        spec["nodeTaints"] = taints
    metadata = {"name": form.value("name")}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def number_in(text: str) -> object:
    """Return a number of Nodes; any other text as it is, for the server to refuse."""
    return int(text) if _is_number(text) else text


def list_labels(form: Form) -> dict[str, str]:
    """Return the labels of Nodes that a form has."""
    return dict(_pair(part) for part in _list(form.value("labels")))


def list_taints(form: Form) -> list[dict[str, str]]:
    """Return the taints of Nodes that a form has."""
    return [_taint(part) for part in _list(form.value("taints"))]


def _list(text: str) -> list[str]:
    return [part for each in text.split(",") if (part := each.strip())]


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _taint(text: str) -> dict[str, str]:
    pair, _, effect = text.rpartition(":")
    key, value = _pair(pair)
    return {"key": key, **({"value": value} if value else {}), "effect": effect.strip()}


def place_fault(path: str, form: Form) -> str:
    """Return the field of the form that a path in a manifest is about; empty for none.

    While the autoscaler sets the target, the form shows its bounds instead.
    """
    name = next((name for start, name in PATHS.items() if path.startswith(start)), "")
    return "most" if name == "target" and form.value("how") == "auto" else name


def list_create_commands(form: Form) -> tuple[Shell, ...]:
    """Return the commands that create the same NodePool.

    `nodepool create` has no flag for some fields; these need the manifest.
    """
    name, cluster = form.value("name") or "NAME", form.value("cluster") or "CLUSTER"
    plain = form.value("how") == "fixed" and form.value("shrink") != "PreferIdle"
    if not plain or form.value("labels") or form.value("taints"):
        own = nodepool("create", "-f", f"{name}.yaml", cluster=cluster)
        return own, kubectl("apply", "-f", f"{name}.yaml")
    spot = ("--compute-class", "spot") if form.value("class") == "spot" else ()
    size = ("--target", form.value("target") or "N")
    kind = ("--instance-type", form.value("type") or "TYPE")
    own = nodepool("create", "nodepool", name, *kind, *spot, *size, cluster=cluster)
    return own, kubectl("apply", "-f", f"{name}.yaml")
