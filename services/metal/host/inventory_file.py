"""The inventory file, read into an inventory, or into all that is wrong with it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from metal.inventory.addresses import REFERENCE_RULE, BootNetwork
from metal.inventory.faults import FaultOf, show
from metal.inventory.faults import Path as Field
from metal.inventory.inventory import Inventory, build_inventory
from metal.inventory.model import API_VERSION, KINDS, InventoryDocument
from metal.inventory.rules import FAULTS_MAX, find_faults
from nodepool.client.manifests import ManifestError, read_documents
from nodepool.contract.suggest import closest, did_you_mean
from nodepool.nats.wire.files import read_given

SIZE_MAX: Final = 8 * 1024 * 1024
"""The largest inventory that is read, in bytes."""
DOCUMENTS_MAX: Final = 2_000
NOT_REACHED: Final = BootNetwork()
"""The network of a service that machines do not reach."""
_REFERENCES: Final = frozenset({"credentials", "joinToken"})
_SECRETS: Final = frozenset({"user", "username", "password", "token", "secret", "login"})
"""Fields that an inventory does not have, and where a secret would be."""


class InventoryError(ValueError):
    """An inventory cannot be used.

    faults: a line for each fault, which names the place, the field and the fix.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A document, where it is, and the tree that its lines are found in."""

    place: str
    body: object
    node: yaml.Node

    def tell(self, path: Field, cause: str) -> str:
        """Return a fault as one line."""
        field = f" {show(path)}:" if path else ""
        return f"{self.place} line {_line_of(self.node, path)}:{field} {cause}"


def read_inventory(path: Path, network: BootNetwork = NOT_REACHED) -> Inventory:
    """Return the inventory in a file; raise InventoryError if it cannot be used."""
    try:
        content = read_given(path, SIZE_MAX)
    except OSError as error:
        raise InventoryError([f"{path}: cannot be read: {error.strerror}"]) from None
    return parse_inventory(content, str(path), network)


def parse_inventory(
    text: str | bytes, source: str, network: BootNetwork = NOT_REACHED
) -> Inventory:
    """Return the inventory in a text; raise InventoryError, whose lines begin with `source`."""
    try:
        placed = [_Placed(*each) for each in read_documents(text, source, SIZE_MAX)]
    except ManifestError as error:
        raise InventoryError([str(error)]) from None
    if not placed:
        raise InventoryError([f"{source}: is empty; begin with apiVersion: {API_VERSION}"])
    if len(placed) > DOCUMENTS_MAX:
        raise InventoryError([f"{source}: has more than {DOCUMENTS_MAX} documents; join some"])
    found = [_parse(each) for each in placed]
    faults = [
        document.tell(*fault)
        for document, parsed in zip(placed, found, strict=True)
        if isinstance(parsed, list)
        for fault in parsed
    ]
    if faults:
        raise InventoryError(faults[:FAULTS_MAX])
    documents = [each for each in found if not isinstance(each, list)]
    broken = find_faults(documents, network)
    if broken:
        raise InventoryError([placed[each.document].tell(each.path, each.cause) for each in broken])
    return build_inventory(documents)


def _parse(placed: _Placed) -> InventoryDocument | list[FaultOf]:
    """Return the value of one document, or what is wrong with the types of its fields."""
    body = placed.body
    if not isinstance(body, Mapping):
        return [((), f"is not a map; begin with apiVersion: {API_VERSION}")]
    if secrets := list(islice(_find_secrets(body, ()), FAULTS_MAX)):
        return secrets
    name = body.get("kind")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        hint = did_you_mean(name, KINDS) if isinstance(name, str) else ""
        return [(("kind",), f"must be one of {', '.join(KINDS)}{hint}")]
    try:
        content = json.dumps(body)
    except (TypeError, ValueError, RecursionError):
        return [((), "contains a value that JSON lacks; quote it")]
    try:
        return kind.model_validate_json(content, strict=True, extra="forbid", by_name=False)
    except ValidationError as error:
        return _faults_of(error)


def _find_secrets(value: object, path: Field) -> Iterator[FaultOf]:
    """Yield each field that may hold a secret in plain text; what it holds is not shown."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, Mapping):
        items = [(str(name), inner) for name, inner in value.items()]
    elif isinstance(value, list):
        items = list(enumerate(value))
    for name, inner in items:
        is_secret = isinstance(name, str) and name.lower() in _SECRETS
        if is_secret or (name in _REFERENCES and isinstance(inner, str | list)):
            yield (*path, name), f"must not hold a secret: {REFERENCE_RULE}"
        else:
            yield from _find_secrets(inner, (*path, name))


def _faults_of(error: ValidationError) -> list[FaultOf]:
    """Return each fault of a validation, without what was given; unknown fields come first.

    A field that is misspelt is missing too, which is told once.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    missing = {each["loc"] for each in found if each["type"] == "missing"}
    faults: list[FaultOf] = []
    for each in found:
        if each["type"] == "extra_forbidden":
            *parent, name = each["loc"]
            siblings = {str(path[-1]): path for path in missing if [*path[:-1]] == parent}
            meant = closest(str(name), siblings)
            missing.discard(siblings.get(meant, ()))
            hint = f"did you mean {meant}?" if meant else "remove it"
            faults.append((each["loc"], f"is not a known field; {hint}"))
    faults += [(path, "is required") for path in sorted(missing, key=str)]
    others = (each for each in found if each["type"] not in ("missing", "extra_forbidden"))
    faults += [(each["loc"], each["msg"][:1].lower() + each["msg"][1:]) for each in others]
    return faults


def _line_of(node: yaml.Node, path: Field) -> int:
    """Return the line of a field; of what it would be in if there is no such field."""
    line = node.start_mark.line
    for name in path:
        inner: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == name:
                    inner, line = value, key.start_mark.line
        elif isinstance(node, yaml.SequenceNode) and isinstance(name, int):
            inner, line = node.value[name], node.value[name].start_mark.line
        if inner is None:
            break
        node = inner
    return int(line) + 1
