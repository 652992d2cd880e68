"""YAML 1.2 (the core schema), read and written by PyYAML.

PyYAML resolves plain scalars as YAML 1.1 does: `1:30` is 90, `010` is 8 and `no` is false. Only its
table of scalars is replaced here, because the syntax is the same in both versions and PyYAML's C
parser is fast. See https://yaml.org/spec/1.2.2/#103-core-schema.
"""

import re
from collections.abc import Hashable
from typing import Final

import yaml

try:
    from yaml import CSafeDumper as _SafeDumper
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # Some platforms have no libyaml; the slower classes accept the same YAML.
    # In PyYAML's stubs, the fast and the slow classes have no common type.
    from yaml import SafeDumper as _SafeDumper  # type: ignore[assignment]
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = {
    "null": (r"~|null|Null|NULL|", "~nN"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
"""Each core schema scalar other than text: its form, and the characters that it can begin with."""
_FORMS: Final = {name: re.compile(form, re.ASCII) for name, (form, _) in _SCALARS.items()}
_BASES: Final = {"0o": 8, "0x": 16}


class Loader(_SafeLoader):
    """Loads only values that JSON has too; a key may occur only once in a map."""

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Hashable, object]:
        """Return the map of a node; raise for a key that occurs twice."""
        assert isinstance(node, yaml.MappingNode)
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in keys:
                problem = f'"{key.value}" is given twice; keep one'
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


class Dumper(_SafeDumper):
    """Writes texts so that readers of YAML 1.1 and of YAML 1.2 read them as texts.

    A repeated value is written in full each time, as Kubernetes does.
    """

    def ignore_aliases(self, _: object) -> bool:
        """Return whether a value has no anchor: always."""
        return True


def _scalar(loader: Loader, node: yaml.ScalarNode, name: str) -> str:
    """Return the text of a scalar; raise if a tag gives a type that its text does not have."""
    text = loader.construct_scalar(node)
    assert isinstance(text, str)
    if not _FORMS[name].fullmatch(text):
        raise yaml.constructor.ConstructorError(
            None, None, f'"{text[:40]}" is not {name}; leave the tag out', node.start_mark
        )
    return text


def _int(loader: Loader, node: yaml.ScalarNode) -> int:
    text = _scalar(loader, node, "int")
    base = _BASES.get(text[:2])
    if base is not None:
        return int(text[2:], base)
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits.startswith("0"):
        decimal = digits.lstrip("0")[:40] or "0"
        problem = (
            f"{text[:40]} begins with 0, which some programs read in base 8;"
            f" write {decimal} for the number, or quotes for the text"
        )
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return int(text)


def _float(loader: Loader, node: yaml.ScalarNode) -> float:
    text = _scalar(loader, node, "float").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _bool(loader: Loader, node: yaml.ScalarNode) -> bool:
    return _scalar(loader, node, "bool").lower() == "true"


def _null(loader: Loader, node: yaml.ScalarNode) -> None:
    _scalar(loader, node, "null")


_KEPT: Final = ("str", "seq", "map")
_BY_NAME: Final = {"null": _null, "bool": _bool, "int": _int, "float": _float}

Loader.yaml_implicit_resolvers = {}
Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in _SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_TAG) in _KEPT
}
# A whole number matches more than one form; the first match applies.
for _name, (_, _first) in _SCALARS.items():
    Loader.add_constructor(_TAG + _name, _BY_NAME[_name])
    _empty = [""] if _name == "null" else []
    _form = re.compile(rf"(?:{_SCALARS[_name][0]})\Z", re.ASCII)
    for _class in (Loader, Dumper):
        _class.add_implicit_resolver(_TAG + _name, _form, [*_first, *_empty])
