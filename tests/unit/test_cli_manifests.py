import io
from pathlib import Path

import pytest

from nodepool.cli.formats import parse_format
from nodepool.client.manifests import SIZE_MAX, ManifestError, parse_manifests, read_manifests

POOL = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: {name}
spec:
  instanceType: gd-8xh100ib-i128
  targetNodes: 2
"""
TRAINING = POOL.format(name="training")


def names(text: str | bytes) -> list[str]:
    return [manifest.command.metadata.name for manifest in parse_manifests(text, "pools.yaml")]


def fault(text: str | bytes) -> str:
    with pytest.raises(ManifestError) as caught:
        parse_manifests(text, "pools.yaml")
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_manifest_becomes_a_command_for_the_nodepool_it_names() -> None:
    (manifest,) = parse_manifests(TRAINING, "pools.yaml")

    assert manifest.place == "pools.yaml"
    assert manifest.command.pool == "training"
    assert manifest.command.spec.target == 2
    assert not manifest.command.dry_run


def test_documents_are_read_in_their_order_and_empty_ones_passed_over() -> None:
    text = "---\n# nothing\n---\n" + POOL.format(name="a") + "---\n" + POOL.format(name="b")

    assert names(text) == ["a", "b"]


def test_json_is_read_as_well() -> None:
    text = (
        '{"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool",\n'
        '\t"metadata": {"name": "a"}, "spec": {"instanceType": "t", "targetNodes": 1}}'
    )

    assert names(text) == ["a"]


def test_what_get_prints_can_be_applied_again() -> None:
    item = {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {
            "name": "a",
            "uid": "u",
            "generation": 3,
            "resourceVersion": "17",
            "creationTimestamp": "2025-06-09T14:48:54Z",
            "finalizers": ["compute.coreweave.com/node-pool"],
        },
        "spec": {"instanceType": "t", "targetNodes": 1},
        "status": {"currentNodes": 1},
    }
    for form in ("json", "yaml"):
        assert names(parse_format(form).whole([item], single=True)) == ["a"]
        assert names(parse_format(form).whole([item, item], single=False)) == ["a", "a"]


def test_an_unquoted_time_stays_text_as_kubernetes_keeps_it() -> None:
    text = TRAINING.replace("training", "training\n  creationTimestamp: 2025-06-09T14:48:54Z")

    (manifest,) = parse_manifests(text, "pools.yaml")

    assert manifest.command.metadata.creation_timestamp == "2025-06-09T14:48:54Z"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pools.yaml: contains no manifest; write one with kind: NodePool"),
        ("just words", "pools.yaml: is not a map; begin with apiVersion:"),
        ("a: [1", "pools.yaml line 2: did not find expected"),
        ("a: 1\na: 2", 'pools.yaml line 2: "a" is given twice; keep one'),
        (TRAINING + "---\nkind: Pod", 'pools.yaml, document 2: kind: is "Pod"; only NodePool can'),
        ("spec: {}", "pools.yaml: kind: is required; write kind: NodePool"),
        ("kind: NodePool", "pools.yaml: apiVersion: is required; write apiVersion: compute."),
        (
            "apiVersion: v1\nkind: NodePool",
            'pools.yaml: apiVersion: is "v1"; only compute.coreweave.com/v1alpha1 can be applied',
        ),
        (TRAINING + "extra: 1", "pools.yaml: extra: is not a known field; remove it"),
        (TRAINING + "  size: 1", "pools.yaml: spec.size: is not a known field"),
        (TRAINING.replace("2", "two"), "pools.yaml: spec.targetNodes: input should be a valid int"),
        (TRAINING.replace("2", "-2"), "pools.yaml: spec.targetNodes: input should be greater"),
        (TRAINING.replace("2", "'2'"), "pools.yaml: spec.targetNodes: input should be a valid int"),
        (TRAINING.replace("  targetNodes: 2\n", ""), "pools.yaml: spec.targetNodes: is required"),
        (TRAINING + "org: other", "pools.yaml: org: is not a known field; remove it"),
        ("kind: List\nitems: 3", "pools.yaml: items: must be a list of manifests"),
        ("kind: List\nitems: [3]", "pools.yaml, item 1: is not a map"),
        ("? [a]\n: b", "pools.yaml line 1: found unhashable key"),
        ("a: !!python/name:os.system", "pools.yaml line 1: could not determine a constructor"),
        ("a\x00b", "pools.yaml: is not YAML: unacceptable character"),
        ("a: " + "9" * 5000, "pools.yaml: is not YAML: Exceeds the limit"),
        (b"\xff\xfe", "pools.yaml: byte 0 is not UTF-8; save it as UTF-8"),
    ],
)
def test_each_fault_names_place_field_and_fix_in_one_line(text: str | bytes, message: str) -> None:
    assert fault(text).startswith(message)


def test_an_alias_is_refused_so_that_no_document_grows_when_it_is_read() -> None:
    message = fault("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]")

    assert message == "pools.yaml line 2: *a is an alias; write the value out instead"


def test_a_document_nested_without_end_is_refused() -> None:
    assert fault("[" * 100_000) == "pools.yaml line 1: is nested more than 64 levels deep"


def test_a_text_over_the_limit_is_refused_before_it_is_read() -> None:
    message = "pools.yaml: is larger than the 1048576 bytes allowed; split it into files"

    assert fault("#" * (SIZE_MAX + 1)) == message
    assert fault("é" * (SIZE_MAX // 2 + 1)) == message


def test_a_folder_gives_its_manifest_files_in_order_of_their_names(tmp_path: Path) -> None:
    for file, name in (("b.yaml", "b"), ("a.yml", "a"), ("c.json", "c"), ("d.txt", "d")):
        (tmp_path / file).write_text(POOL.format(name=name))
    (tmp_path / "below").mkdir()

    manifests = read_manifests([str(tmp_path)])

    assert [manifest.command.pool for manifest in manifests] == ["a", "b", "c"]
    assert manifests[0].place == str(tmp_path / "a.yml")


def test_standard_input_is_a_file_called_minus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TRAINING.encode())))

    (manifest,) = read_manifests(["-"])

    assert (manifest.place, manifest.command.pool) == ("standard input", "training")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"nope: cannot be read: No such file or directory$"):
        read_manifests([str(tmp_path / "nope")])
    with pytest.raises(ManifestError, match=r"contains no \.yaml, \.yml or \.json file"):
        read_manifests([str(tmp_path)])


def test_subfolders_are_read_on_request_only(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.yaml").write_text(POOL.format(name="b"))

    with pytest.raises(ManifestError, match=r"or use -R to read its subfolders$"):
        read_manifests([str(tmp_path)])
    (tmp_path / "a.yaml").write_text(POOL.format(name="a"))

    for recursive, found in ((False, ["a"]), (True, ["a", "b"])):
        manifests = read_manifests([str(tmp_path)], recursive=recursive)
        assert [manifest.command.metadata.name for manifest in manifests] == found


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["https://host/a.yaml"], "https://host/a.yaml: is an address, and nothing is fetched"),
        (["-", "-"], "-: standard input can be read once only; name it once"),
    ],
)
def test_what_cannot_be_read_as_a_file_is_refused(names: list[str], message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_manifests(names)

    assert str(caught.value).startswith(message)
