import subprocess
import sys
from collections.abc import Mapping

import click
import pytest

from nodepool.cli.app import run
from nodepool.cli.names import CAPACITY, NODE, NODEPOOL, QUOTA, Kind, named
from nodepool.cli.output import is_called, name_of, printed
from nodepool.cli.read import selects
from nodepool.cli.settings import Settings, from_environment

LABELLED = {"metadata": {"name": "g1", "labels": {"pool": "a", "empty": ""}}}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "ORG", "CLUSTER", "NATS_PORT"):
        monkeypatch.delenv(f"NODEPOOL_{name}", raising=False)


@pytest.mark.parametrize(
    ("words", "kind", "names"),
    [
        (["nodepools"], NODEPOOL, []),
        (["np", "a", "b", "a"], NODEPOOL, ["a", "b"]),
        (["nodepool.compute.coreweave.com", "a"], NODEPOOL, ["a"]),
        (["NodePool/a.b", "np/c"], NODEPOOL, ["a.b", "c"]),
        (["no"], NODE, []),
        (["node/g1"], NODE, ["g1"]),
        (["quota"], QUOTA, []),
        (["capacity"], CAPACITY, []),
    ],
)
def test_types_and_names_are_understood_in_every_spelling(
    words: list[str], kind: Kind, names: list[str]
) -> None:
    assert named(words) == (kind, names)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "TYPE: is missing"),
        (["pods"], "TYPE: 'pods' is not known here; write nodepools or nodes"),
        (["np/a", "b"], "NAME: 'b' stands beside TYPE/NAME"),
        (["np/"], "NAME: 'np/' stands beside TYPE/NAME"),
        (["np/a", "node/b"], "TYPE: differs between the names"),
    ],
)
def test_other_words_are_a_usage_error_that_names_the_fix(words: list[str], told: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        named(words)

    assert caught.value.message.startswith(told)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bogus"], "error: No such command 'bogus' (see nodepool --help)"),
        (["get"], "error: TYPE: is missing;"),
        (["get", "np", "-o", "xml"], "error: Invalid value for '-o' / '--output'"),
        (["get", "np", "-l", "a=b=c"], "error: --selector: 'a=b=c' is no condition"),
        (["scale", "np", "a"], "error: Missing option '--target'"),
        (["scale", "np", "--target", "1"], "error: NAME: is missing; write nodepool NAME"),
        (["scale", "np", "a", "--target", "x"], "error: Invalid value for '--target'"),
        (["scale", "node", "a", "--target", "1"], "error: TYPE: 'node' is not known here; write n"),
        (
            ["wait", "np", "a", "--for", "done"],
            "error: --for: 'done' is not known; write condition=",
        ),
        (
            ["wait", "np", "a", "--for", "condition=A=B"],
            "error: --for: 'B' is no status; write True",
        ),
        (
            ["wait", "np", "a", "--for", "delete", "--timeout", "9"],
            "error: --timeout: '9' is no dur",
        ),
        (["delete"], "error: NAME: write either nodepool NAME or -f FILE"),
        (
            ["events", "--types", "Bad"],
            "error: --types: 'bad' is not known; write Normal or Warning",
        ),
        (["events", "--since", "1d"], "error: --since: '1d' is no duration"),
        (["fleet", "repair", "g1"], "error: ZONE/MACHINE: 'g1' must be ZONE/MACHINE"),
        (["fleet", "add", "Z", "t", "1", "--label", "x"], "error: --label: 'x' must be KEY=VALUE"),
        (["--org", "A*", "get", "np"], "error: --org: 'A*' must be lower case letters"),
        (["get", "np", "--cluster", "a.b"], "error: --cluster: 'a.b' must be lower case letters"),
        (["get", "np", "--timeout", "0"], "error: --timeout: 0 is out of range"),
    ],
)
def test_a_usage_error_is_one_line_and_exits_with_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(arguments)

    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.startswith(told)
    assert printed.err.count("\n") == 1


def test_a_manifest_at_fault_exits_with_1_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["apply", "-f", "no-such-file.yaml"]) == 1
    expected = "error: no-such-file.yaml: cannot be read: No such file or directory\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        ({}, Settings("nats://127.0.0.1:4222", "demo", "demo")),
        ({"NODEPOOL_NATS_PORT": "5000"}, Settings("nats://127.0.0.1:5000", "demo", "demo")),
        (
            {"NODEPOOL_URL": "nats://bus:1", "NODEPOOL_NATS_PORT": "5000", "NODEPOOL_ORG": "acme"},
            Settings("nats://bus:1", "acme", "demo"),
        ),
    ],
)
def test_the_environment_says_where_and_for_whom(
    variables: Mapping[str, str], settings: Settings
) -> None:
    assert from_environment(variables) == settings


def test_a_port_that_is_none_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match="NODEPOOL_NATS_PORT: 'x' is no port"):
        from_environment({"NODEPOOL_NATS_PORT": "x"})


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("", True),
        ("pool=a", True),
        ("pool==a,empty=", True),
        ("pool=b", False),
        ("pool!=b", True),
        ("pool", True),
        ("!pool", False),
        ("!other,other!=x", True),
        ("pool=a,other", False),
    ],
)
def test_selectors_choose_by_labels_as_in_kubectl(selector: str, chosen: bool) -> None:
    assert selects(selector, LABELLED) is chosen


def test_a_quota_is_called_by_its_zone_its_type_or_both() -> None:
    quota = {"zone": "Z", "instanceType": "t", "limit": 1, "used": 0}

    assert name_of(QUOTA, quota) == "Z.t"
    assert all(is_called(QUOTA, quota, [name]) for name in ("Z", "t", "Z.t"))
    assert not is_called(QUOTA, quota, ["other"])


def test_several_objects_are_printed_as_a_list_and_one_as_itself() -> None:
    one = {"kind": "NodePool", "metadata": {"name": "a"}}

    assert printed(NODEPOOL, [one], "name", single=True) == "nodepool.compute.coreweave.com/a"
    assert printed(NODEPOOL, [one], "yaml", single=True).startswith("kind: NodePool")
    assert printed(NODEPOOL, [one, one], "yaml", single=False).startswith("apiVersion: v1\nitems:")


def test_help_is_printed_without_loading_what_it_does_not_need() -> None:
    script = (
        "import sys; from nodepool.cli.app import run; assert run(['--help']) == 0;"
        "assert run(['get', '--help']) == 0;"
        "sys.exit(bool({'nats', 'pydantic', 'yaml', 'asyncio'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0
    assert (
        "Exit codes: 0 done, 1 refused or not found, 2 usage, 3 timeout, 4 no server" in done.stdout
    )
