"""Texts that people write: manifests, templates, selectors, patches, settings, in any form."""

import json
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.bounded import bounded
from fuzz.corpus import randoms
from nodepool.cli.jsonpath import JsonPathError, render_template
from nodepool.cli.jsonpath_parser import parse_path, parse_template
from nodepool.cli.patches import PatchError, apply_json_patch
from nodepool.client.manifests import ManifestError, parse_manifests, parse_yaml
from nodepool.contract.merging import apply_merge_patch, conflicts
from nodepool.contract.model import API_VERSION
from nodepool.host.settings import Settings, SettingsError, check_names, read
from support.hostile.contents import TOKENS, garbled, mutated

MANIFEST = {
    "apiVersion": API_VERSION,
    "kind": "NodePool",
    "metadata": {"name": "train", "labels": {"team": "red"}},
    "spec": {
        "instanceType": "gd-8xh100ib-i128",
        "targetNodes": 3,
        "nodeTaints": [{"key": "team", "value": "red", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
                    ]
                }
            }
        },
    },
}
LIST = {"apiVersion": "v1", "kind": "List", "items": [MANIFEST, MANIFEST]}
YAML_PIECES = (
    "a: b\n",
    "- ",
    "--- \n",
    "...\n",
    "&a [*a]\n",
    "<<: *a\n",
    "? - a\n: b\n",
    "!!python/object:os.system x\n",
    "!!binary =\n",
    "0x1F\n",
    "1e999\n",
    ".inf\n",
    "-.nan\n",
    "1:59:59\n",
    "2026-01-01\n",
    "'",
    '"\\ud800"',
    "|\n  x\n",
    "%YAML 9.9\n",
    "\t",
    "\x00",
    "\ufeff",
    "[" * 100,
    "{a: " * 100,
    "spec: {targetNodes: 1_000}\n",
    "kind: NodePool\n",
)
TEMPLATE_PIECES = (
    "{", "}", "[", "]", "(", ")", "?", "@", "$", ".", "..", "*", ",", ":", "-1", "0", "1" * 5_000,
    "==", "<", "'", '"', "\\", "range ", "end", ".items", ".metadata", "['a.b']", "[?(@.x==1)]",
    "[::0]", "[-1]", "\n", "\u20ac", "{range .items[*]}", "{end}", "..*", "1e999", "[0,1]",
)  # fmt: skip


def _pieces(random: Random, pieces: tuple[str, ...]) -> str:
    return "".join(random.choice(pieces) for _ in range(random.randint(1, 12)))


@given(randoms, st.binary(max_size=200))
def test_a_manifest_of_any_content_is_read_or_refused(random: Random, raw: bytes) -> None:
    right = json.dumps(random.choice((MANIFEST, LIST))).encode()
    contents = (
        raw,
        mutated(random, random.choice((MANIFEST, LIST))),
        garbled(random, right),
        _pieces(random, YAML_PIECES).encode(errors="surrogatepass"),
    )

    for content in contents:
        with bounded():
            _either(partial(parse_manifests, content, "f.yaml"), ManifestError)
            _either(partial(parse_yaml, content, "f.yaml"), ManifestError)


@given(randoms, st.text(max_size=40))
def test_a_template_of_any_text_is_read_or_refused(random: Random, raw: str) -> None:
    for text in (raw, f"{{{raw}}}", _pieces(random, TEMPLATE_PIECES)):
        with bounded():
            _either(partial(_render, text), JsonPathError)
            _either(partial(parse_path, text), JsonPathError)


def _render(text: str) -> str:
    return render_template(parse_template(text), LIST)


@given(randoms)
def test_a_patch_of_any_content_is_applied_or_refused(random: Random) -> None:
    operations = [
        {"op": "replace", "path": "/spec/targetNodes", "value": 4},
        {"op": "move", "path": "/spec/a", "from": "/spec/lifecycle"},
        {"op": "test", "path": "/spec/nodeTaints/0/key", "value": "team"},
    ]
    patch = _parsed(mutated(random, random.choice((operations, MANIFEST))))

    with bounded():
        _either(lambda: apply_json_patch(MANIFEST, patch), PatchError)
        apply_merge_patch(MANIFEST, patch)
        conflicts(MANIFEST, patch)


def _parsed(content: bytes) -> object:
    try:
        return parse_yaml(content, "the patch")
    except ManifestError:
        return None


@given(randoms, st.text(max_size=20))
def test_a_setting_of_any_value_is_taken_or_refused(random: Random, raw: str) -> None:
    name = random.choice([*map(str.upper, Settings.__slots__), raw, f"{raw}_SERVICE_HOST"])
    value = random.choice((raw, *TOKENS, "nats://a:b", "tls://[::1", "a,b,,c", "ws://x:99999"))
    environment = {f"NODEPOOL_{name}": value}

    with bounded():
        _either(lambda: read(environment), SettingsError)
        _either(lambda: check_names(environment), SettingsError)


def _either(function: Callable[[], object], error: type[Exception]) -> None:
    """Calls a function, which may raise this error, with a text of one line, and no other."""
    text = "a result"
    try:
        function()
    except error as refusal:
        text = str(refusal)
    assert text.strip()
    assert "\n" not in text


def test_an_error_of_another_class_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        _either(lambda: 1 // 0, ManifestError)
