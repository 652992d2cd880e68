import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta

import click
import pytest

from nodepool.cli.app import run
from nodepool.cli.commands.events import Query
from nodepool.cli.commands.get import Changes
from nodepool.cli.errors import REFUSED, TIMEOUT, UNREACHABLE, CliError, report
from nodepool.cli.names import CAPACITY, NODE, NODEPOOL, QUOTA, Kind, parse_names
from nodepool.cli.options import seconds
from nodepool.cli.output import formatted, is_named, name_of
from nodepool.cli.selectors import selects
from nodepool.cli.settings import Settings, from_environment
from nodepool.cli.view import View
from nodepool.client import NoOutcome, NotFound, Object, ObjectEvent, Refused, TimedOut, Unreachable
from nodepool.client.manifests import ManifestError
from nodepool.engine.world import START

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
    assert parse_names(words) == (kind, names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "TYPE: is required; use nodepools or nodes or quotas or capacity"),
        (["pods"], "TYPE: 'pods' is not supported; use nodepools or nodes"),
        (["np/a", "b"], "NAME: 'b' is not TYPE/NAME; write every name that way"),
        (["np/"], "NAME: 'np/' is not TYPE/NAME"),
        (["np/a", "node/b"], "TYPE: all names must be of one type"),
    ],
)
def test_other_words_are_a_usage_error_that_names_the_fix(words: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        parse_names(words)

    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "error: No such command 'bogus' (see nodepool --help)"),
        (["get"], "error: TYPE: is required;"),
        (["get", "np", "-o", "xml"], "error: Invalid value for '-o' / '--output'"),
        (["get", "np", "-l", "a=b=c"], "error: --selector: 'a=b=c' is not a label selector"),
        (["scale", "np", "a"], "error: Missing option '--target'"),
        (["scale", "np", "--target", "1"], "error: NAME: is required; write nodepool NAME"),
        (["scale", "np", "a", "--target", "x"], "error: Invalid value for '--target'"),
        (["scale", "node", "a", "--target", "1"], "error: TYPE: 'node' is not supported; use no"),
        (
            ["wait", "np", "a", "--for", "done"],
            "error: --for: 'done' is not supported; write condition=",
        ),
        (
            ["wait", "np", "a", "--for", "condition=A=B"],
            "error: --for: 'B' is not a status; use True",
        ),
        (
            ["wait", "np", "a", "--for", "delete", "--timeout", "9"],
            "error: --timeout: '9' is not a dur",
        ),
        (["delete"], "error: NAME: is required; write nodepool NAME, -f FILE, -l SELECTOR or"),
        (["delete", "np", "a", "--all"], "error: NAME: write either names, or --all or a sel"),
        (["delete", "np", "a", "-f", "x"], "error: -f: cannot be combined with names, --all"),
        (["delete", "quota", "-l", "a=b"], "error: NAME: a quota is chosen by NAME or --all"),
        (["delete", "node", "a"], "error: TYPE: 'node' is not supported; use nodepools or quo"),
        (["delete", "np", "a", "--cascade=orphan"], "error: --cascade: Nodes cannot stay with"),
        (["delete", "np", "a", "--grace-period=0"], "error: No such option '--grace-period': eac"),
        (["delete", "np", "a", "--force"], "error: No such option '--force': nothing can be"),
        (["delete", "np", "a", "--zone", "Z"], "error: --zone: a NodePool has the zone of its"),
        (["delete", "np", "--field-selector", "x"], "error: --field-selector: 'x' is not a field"),
        (["apply", "-k", "."], "error: No such option '-k': render it with 'kubectl kustomize"),
        (["apply", "-f", "x", "-n", "y"], "error: No such option '-n': NodePools have no name"),
        (["apply", "-f", "x", "--dry-run=maybe"], "error: Invalid value for '--dry-run'"),
        (["scale", "np", "a", "--targt", "1"], "error: No such option '--targt': did you mean"),
        (["scale", "np", "a", "--timeout", "1"], "error: No such option '--timeout': it is how"),
        (["create", "np", "a"], "error: --instance-type: is required"),
        (["create", "np", "a", "b", "--target", "1"], "error: NAME: write either nodepool and o"),
        (["create", "np", "a", "-f", "x"], "error: -f: cannot be combined with a"),
        (["patch", "np", "a"], "error: -p: write either -p PATCH or --patch-file FILE"),
        (["label", "np", "a"], "error: KEY=VALUE: is required; or KEY- to remove a label"),
        (["label", "np", "a", "x=y", "x-"], "error: x: cannot be set and removed at once"),
        (["label", "np", "a", "x=y z"], "error: x=y z: value 'y z' must be letters"),
        (["edit", "np"], "error: NAME: is required; write nodepool NAME"),
        (["aply"], "error: No such command 'aply': did you mean apply? (see nodepool --help)"),
        (["logs", "x"], "error: No such command 'logs': Pods are not part of the control plane"),
        (["exec", "x"], "error: No such command 'exec': use kubectl for the Pods of a cluster"),
        (["scale", "nodepol", "a", "--target", "1"], "error: TYPE: 'nodepol' is not supported;"),
        (["get", "np", "--url", ""], "error: --url: '' is not the address of a server; write"),
        (
            ["events", "--types", "Bad"],
            "error: --types: 'bad' is not an event type; use Normal or Warning",
        ),
        (["events", "--since", "1d"], "error: --since: '1d' is not a duration"),
        (["fleet", "repair", "g1"], "error: ZONE/MACHINE: 'g1' must be ZONE/MACHINE"),
        (["fleet", "add", "Z", "t", "1", "--label", "x"], "error: --label: 'x' must be KEY=VALUE"),
        (["--org", "A*", "get", "np"], "error: --org: 'A*' must be lower case letters"),
        (["get", "np", "--cluster", "a.b"], "error: --cluster: 'a.b' must be lower case letters"),
        (["get", "np", "--request-timeout", "0"], "error: --request-timeout: 0 is out of range"),
    ],
)
def test_a_usage_error_is_one_line_and_exits_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(arguments)

    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.startswith(message)
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
def test_settings_come_from_the_environment(
    variables: Mapping[str, str], settings: Settings
) -> None:
    assert from_environment(variables) == settings


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NODEPOOL_NATS_PORT", "x", "NODEPOOL_NATS_PORT: 'x' is not a port"),
        ("NODEPOOL_URL", "", "NODEPOOL_URL: '' is not the address of a server"),
        ("NODEPOOL_ORG", "", "NODEPOOL_ORG: '' must be lower case letters"),
        ("NODEPOOL_CLUSTR", "a", "NODEPOOL_CLUSTR is no setting; did you mean NODEPOOL_CLUSTER?"),
    ],
)
def test_a_wrong_setting_is_a_usage_error_that_names_it(
    variable: str, value: str, message: str
) -> None:
    with pytest.raises(click.UsageError) as caught:
        from_environment({variable: value})

    assert caught.value.message.startswith(message)


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


def test_a_quota_is_named_by_its_zone_its_type_or_both() -> None:
    quota = {"zone": "Z", "instanceType": "t", "limit": 1, "used": 0}

    assert name_of(QUOTA, quota) == "Z.t"
    assert all(is_named(QUOTA, quota, [name]) for name in ("Z", "t", "Z.t"))
    assert not is_named(QUOTA, quota, ["other"])


def test_several_objects_are_printed_as_a_list_and_one_as_itself() -> None:
    pool = {"kind": "NodePool", "metadata": {"name": "a"}}

    assert formatted(NODEPOOL, [pool], "name", single=True) == "nodepool.compute.coreweave.com/a"
    assert formatted(NODEPOOL, [pool], "yaml", single=True).startswith("kind: NodePool")
    assert formatted(NODEPOOL, [pool, pool], "yaml", single=False).startswith(
        "apiVersion: v1\nitems:"
    )


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


# Errors.


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("f", "Invalid", "m"), REFUSED),
        (NotFound("n"), REFUSED),
        (ManifestError("m"), REFUSED),
        (CliError("c"), REFUSED),
        (NoOutcome("n"), TIMEOUT),
        (TimedOut("t"), TIMEOUT),
        (Unreachable("u"), UNREACHABLE),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert report(error) == code


def test_an_error_is_printed_in_one_line_with_what_it_is_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report(CliError("first\n  second"), 'node "g1"')

    assert capsys.readouterr().err == 'error: node "g1": first second\n'


def test_a_bug_is_not_reported_as_an_error_of_the_user() -> None:
    with pytest.raises(ZeroDivisionError):
        report(ZeroDivisionError())


def test_a_duration_that_cannot_be_read_is_a_usage_error_of_its_option() -> None:
    assert seconds("--since", "1m30s") == 90
    with pytest.raises(click.UsageError, match=r"^--since: 'x' is not a duration"):
        seconds("--since", "x")


# Views.


def pool(name: str, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels}}


def test_a_view_includes_objects_by_name_and_label() -> None:
    view = View(NODEPOOL, ["a", "b", "c"], selector="team=x")

    assert view.includes(pool("a", team="x"))
    assert not view.includes(pool("a", team="y"))
    assert not view.includes(pool("d", team="x"))
    assert view.missing([pool("b")]) == ["a", "c"]


def test_a_watch_prints_the_list_in_order_and_then_each_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = Changes(View(NODEPOOL, [], "name"))
    changes.take(Object("b", pool("b"), 1))
    changes.take(Object("a", pool("a"), 2))
    assert capsys.readouterr().out == ""

    assert changes.finish_list() == []
    assert capsys.readouterr().out.split() == [f"{NODEPOOL.full}/a", f"{NODEPOOL.full}/b"]

    changes.take(Object("c", pool("c"), 3))
    assert capsys.readouterr().out.split() == [f"{NODEPOOL.full}/c"]


def test_a_watch_prints_a_deleted_object_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    changes = Changes(View(NODEPOOL, ["a"], "name"))
    changes.take(Object("a", pool("a"), 1))
    changes.take(Object("gone", None, 2))
    changes.finish_list()
    capsys.readouterr()

    changes.take(Object("a", None, 3))
    changes.take(Object("a", None, 4))

    assert capsys.readouterr().out.split() == [f"{NODEPOOL.full}/a"]


def test_a_watch_for_an_object_that_does_not_exist_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = Changes(View(NODEPOOL, ["a", "b"], "name"))
    changes.take(Object("a", pool("a"), 1))

    assert changes.finish_list() == ["b"]
    assert capsys.readouterr().out == ""


def test_a_query_without_types_includes_every_event() -> None:
    event = ObjectEvent(START, "Warning", "CWOverQuota", "NodePool", "a", "quota", "over")

    assert Query("", "", frozenset(), timedelta()).includes(event)
    assert Query("", "", frozenset({"warning"}), timedelta()).includes(event)
    assert not Query("", "", frozenset({"normal"}), timedelta()).includes(event)
