"""The files that describe the contract to other programs: `make contracts` writes them."""

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from contracts.asyncapi import document
from contracts.crd import crd
from contracts.manifest_schema import manifest_schema

ROOT = Path(__file__).parents[3]
SHARED = ROOT / "shared"
ASYNCAPI = SHARED / "asyncapi.yaml"
MANIFEST = SHARED / "nodepool.schema.json"
CRD = ROOT / "deploy" / "kubernetes" / "agent" / "crd.yaml"
_HEAD = "# Made by `make contracts` from the classes of the messages.\n"


class _Dumper(yaml.SafeDumper):
    """Writes values out in full: parsers of other languages limit anchors, or have none."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def texts() -> dict[Path, str]:
    """Return the content that each file must have, by path."""
    manifest = json.dumps(manifest_schema(), indent=2, ensure_ascii=False)
    return {ASYNCAPI: _yaml(document()), MANIFEST: f"{manifest}\n", CRD: _yaml(crd())}


def _yaml(document: Mapping[str, object]) -> str:
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"{_HEAD}{text}"


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
