import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from importlib.metadata import version

import click
import pytest

from nodepool.cli.app import SUMMARIES, cli, run
from nodepool.cli.changes import Changes
from nodepool.cli.commands.events import Query
from nodepool.cli.errors import REFUSED, TIMEOUT, UNREACHABLE, CliError, report
from nodepool.cli.formats import Format, parse_format
from nodepool.cli.names import (
    ALL,
    CAPACITY,
    INSTANCE_TYPE,
    KINDS,
    NODE,
    NODEPOOL,
    QUOTA,
    Kind,
    Selection,
    parse_names,
    parse_selections,
)
from nodepool.cli.options import seconds
from nodepool.cli.output import full_name, is_named, name_of
from nodepool.cli.settings import Settings, from_environment
from nodepool.cli.sources import Item
from nodepool.cli.verdicts import warning
from nodepool.cli.view import View
from nodepool.client import NoOutcome, NotFound, ObjectEvent, Refused, TimedOut, Unreachable
from nodepool.client.manifests import ManifestError
from nodepool.contract.conditions import Validated
from nodepool.contract.events import NodePoolValidated
from nodepool.contract.events.validator import SpecFault
from nodepool.contract.model import ComputeClass, NodePoolSpec
from nodepool.engine.world import START
from testbed.ports import free_port

VERSION = version("nodepool")


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
        (["capacities"], CAPACITY, []),
        (["it/a"], INSTANCE_TYPE, ["a"]),
    ],
)
def test_types_and_names_are_understood_in_every_spelling(
    words: list[str], kind: Kind, names: list[str]
) -> None:
    assert parse_names(words) == (kind, names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "TYPE: is required; use nodepools (np), nodes (no), quotas (qt), capacities (cap),"),
        (
            ["deployments"],
            "TYPE: 'deployments' is not a type of object; use nodepools (np), nodes (no), quotas",
        ),
        (["nodpool"], "TYPE: 'nodpool' is not a type of object; did you mean nodepools?"),
        ([","], "TYPE: is required; use nodepools (np)"),
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
        (["get", "np", "-o", "xml"], "error: --output: 'xml' is not a format; use json, yaml"),
        (
            ["get", "np", "-o", "foo"],
            "error: --output: 'foo' is not a format; use json, yaml, wide, name,"
            " jsonpath=TEMPLATE, custom-columns=TITLE:PATH,... (see nodepool get --help)",
        ),
        (["get", "np", "-o", "jsn"], "error: --output: 'jsn' is not a format; did you mean json?"),
        (["get", "np", "--field-selector", "spec"], "error: --field-selector: 'spec' is not a f"),
        (
            ["get", "np", "--field-selector", "sepc.x=1"],
            "error: --field-selector: sepc.x: nodepool",
        ),
        (["get", "np", "--sort-by", "{.a"], "error: --sort-by: '{.a' has no '}' at its end"),
        (["get", "np,no", "-w"], "error: --watch: shows objects of one type; name a single TYPE"),
        (["get", "np", "-w", "--sort-by", ".a"], "error: --sort-by: has no meaning with --watch"),
        (["get", "zones", "-w"], "error: --watch: zones cannot be watched; leave it out"),
        *(
            (
                ["get", "np", flag, "x"],
                f"error: No such option '{flag}'; set NODEPOOL_NKEY_FILE, or what the server",
            )
            for flag in ("--token", "--user", "--as")
        ),
        (["get", "np", "a", "-A"], "error: --all-namespaces: shows all objects; leave the names"),
        (["wait", "np", "--for", "delete"], "error: NAME: is required; write nodepool NAME, --all"),
        (["wait", "np/a", "--all", "--for", "delete"], "error: NAME: write either names, or --all"),
        (["wait", "np/a", "--for", "jsonpath={.a"], "error: --for: jsonpath: '{.a' has no '}'"),
        (["wait", "np/a", "--for", "jsonpath={.a}="], "error: --for: 'jsonpath={.a}=' has no val"),
        (["wait", "qt/a", "--for", "delete"], "error: TYPE: 'qt' is not supported here; use node"),
        (["rollout", "status", "node/a"], "error: TYPE: 'node' is not supported here; use nodepo"),
        (["describe", "events"], "error: TYPE: 'events' is not supported here; use nodepools (np)"),
        (["get", "np", "-l", "a=b=c"], "error: --selector: 'a=b=c' is not a label selector"),
        (["scale", "np", "a"], "error: Missing option '--target'"),
        (["scale", "np", "--target", "1"], "error: NAME: is required; write nodepool NAME"),
        (["scale", "np", "a", "--target", "x"], "error: Invalid value for '--target'"),
        (["scale", "node", "a", "--target", "1"], "error: TYPE: 'node' is not supported here; use"),
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
        (["delete", "node", "a"], "error: TYPE: 'node' is not supported here; use nodepools (n"),
        (["delete", "np", "a", "--cascade=orphan"], "error: --cascade: Nodes cannot stay with"),
        (["delete", "np", "a", "--grace-period=0"], "error: No such option '--grace-period'; eac"),
        (["delete", "np", "a", "--force"], "error: No such option '--force'; nothing can be"),
        (["delete", "np", "a", "--zone", "Z"], "error: --zone: a NodePool has the zone of its"),
        (["delete", "np", "--field-selector", "x"], "error: --field-selector: 'x' is not a field"),
        (
            ["delete", "np", "--field-selector", "spec.comuteClass!=spot"],
            "error: --field-selector: spec.comuteClass: spec has no field 'comuteClass'; did",
        ),
        (["delete", "-f", ""], "error: -f: '' is not the name of a file"),
        (["get", "-f", ""], "error: -f: '' is not the name of a file"),
        (["rollout", "undo", "np/a"], "error: No such command 'undo'; apply the earlier manifest"),
        (["rollout", "stauts", "np/a"], "error: No such command 'stauts'; did you mean status?"),
        (["version", "-o", "xml"], "error: --output: 'xml' is not a format; use json, yaml"),
        (["apply", "-k", "."], "error: No such option '-k'; render it with 'kubectl kustomize"),
        (["apply", "-f", "x", "-n", "y"], "error: No such option '-n'; NodePools have no name"),
        (["apply", "-f", "x", "--dry-run=maybe"], "error: Invalid value for '--dry-run'"),
        (["scale", "np", "a", "--targt", "1"], "error: No such option '--targt'; did you mean"),
        (["scale", "np", "a", "--timeout", "1"], "error: No such option '--timeout'; it is how"),
        (["create", "np", "a"], "error: --instance-type: is required"),
        (["create", "np", "a", "b", "--target", "1"], "error: NAME: write either nodepool and o"),
        (["create", "np", "a", "-f", "x"], "error: -f: cannot be combined with a"),
        (["patch", "np", "a"], "error: -p: write either -p PATCH or --patch-file FILE"),
        (["label", "np", "a"], "error: KEY=VALUE: is required; or KEY- to remove a label"),
        (["label", "np", "a", "x=y", "x-"], "error: x: cannot be set and removed at once"),
        (["label", "np", "a", "x=y z"], "error: x=y z: value 'y z' must be letters"),
        (["edit", "np"], "error: NAME: is required; write nodepool NAME"),
        (["aply"], "error: No such command 'aply'; did you mean apply? (see nodepool --help)"),
        (["help", "get"], "error: No such command 'help'; use 'nodepool --help' or 'nodepool VE"),
        (["options"], "error: No such command 'options'; use 'nodepool --help' or 'nodepool VERB"),
        (["get", "np", "--all"], "error: No such option '--all'; name the objects, or leave it"),
        (["get", "np", "--raw", "/"], "error: No such option '--raw' (see nodepool get --help)"),
        (["edit", "np", "--quiet"], "error: No such option '--quiet' (see nodepool edit --help)"),
        (["version", "--short"], "error: No such option '--short' (see nodepool version --help)"),
        (["create", "x", "y", "--image=z"], "error: No such option '--image' (see nodepool crea"),
        (["get", "np", "--wathc"], "error: No such option '--wathc'; did you mean --watch? (see"),
        (["get", "np", "-l"], "error: Option '-l' requires an argument (see nodepool get --help)"),
        (
            ["get", "np", "-w=maybe"],
            "error: -w: 'maybe' is neither true nor false (see nodepool ge",
        ),
        (["describe", "np", "a", "-f", "x"], "error: NAME: write either TYPE or -f FILE"),
        (["wait", "np/a", "-f", "x", "--for", "delete"], "error: NAME: write either TYPE or -f FI"),
        (["rollout", "status", "np/a", "-f", "x"], "error: NAME: write either TYPE or -f FILE"),
        (["logs", "x"], "error: No such command 'logs'; use 'nodepool events' for what happened"),
        (["exec", "x"], "error: No such command 'exec'; use 'kubectl exec' on a cluster"),
        (
            ["scale", "nodepol", "a", "--target", "1"],
            "error: TYPE: 'nodepol' is not a type of object; did",
        ),
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
        (
            ["get", "np", "--timeout", "5"],
            "error: No such option '--timeout'; it is how long a c",
        ),
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


def test_several_types_are_named_at_once_and_all_stands_for_several() -> None:
    assert parse_selections(["np,no,np", "a"]) == [
        Selection(NODEPOOL, ["a"]),
        Selection(NODE, ["a"]),
    ]
    assert parse_selections(["np/a", "no/b", "np/c"]) == [
        Selection(NODEPOOL, ["a", "c"]),
        Selection(NODE, ["b"]),
    ]
    assert parse_selections(["all"]) == [Selection(kind, []) for kind in ALL]


def test_no_two_types_share_a_name() -> None:
    spellings = [spelling for kind in KINDS for spelling in kind.spellings]

    assert len(spellings) == len(set(spellings))


def test_a_quota_is_named_by_its_zone_its_type_or_both() -> None:
    quota = {"zone": "Z", "instanceType": "t", "limit": 1, "used": 0}

    assert name_of(QUOTA, quota) == "Z.t"
    assert all(is_named(QUOTA, quota, [name]) for name in ("Z", "t", "Z.t"))
    assert not is_named(QUOTA, quota, ["other"])


def test_several_objects_are_printed_as_a_list_and_one_as_itself() -> None:
    pool = {"kind": "NodePool", "metadata": {"name": "a"}}

    yaml = parse_format("yaml")

    assert full_name(NODEPOOL, pool) == "nodepool.compute.coreweave.com/a"
    assert yaml.whole([pool], single=True).startswith("kind: NodePool")
    assert yaml.whole([pool, pool], single=True).startswith("apiVersion: v1\nitems:")
    assert yaml.whole([pool], single=False).startswith("apiVersion: v1\nitems:")


def test_help_is_printed_without_loading_what_it_does_not_need() -> None:
    script = (
        "import sys; from nodepool.cli.app import run; assert run(['--help']) == 0;"
        "assert 'nodepool.cli.commands' not in sys.modules;"
        "assert run(['__complete', '--', '']) == 0;"
        "verbs = [name for name in sys.modules if name.startswith('nodepool.cli.commands.')];"
        "assert verbs == ['nodepool.cli.commands.completion'], verbs;"
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


def test_the_garbage_collector_has_nothing_to_search_when_a_command_ends() -> None:
    script = (
        "import atexit, gc, os, sys; from nodepool.cli import main;"
        "atexit.register(lambda: os._exit(len(gc.get_objects()) > gc.get_freeze_count()));"
        "sys.argv[1:] = ['--help']; main()"
    )

    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)

    assert done.returncode == 0


def test_the_list_of_commands_says_what_the_help_of_each_command_begins_with() -> None:
    context = click.Context(cli)
    commands = {verb: cli.get_command(context, verb) for verb in cli.list_commands(context)}

    first_sentences = {
        verb: " ".join((command.help or "").partition("\n\n")[0].split())
        for verb, command in commands.items()
        if command is not None and not command.hidden
    }

    assert first_sentences == SUMMARIES


@pytest.mark.parametrize(
    "verb",
    ["get np", "describe np a", "events", "wait np a --for delete", "rollout status np/a"],
)
def test_a_verb_that_reads_loads_neither_models_nor_other_verbs_before_it_is_connected(
    verb: str,
) -> None:
    script = (
        "import sys; from nodepool.cli.app import run;"
        f"words = [*{verb.split()}, '--url', 'nats://127.0.0.1:{free_port()}'];"
        "assert run([*words, '--request-timeout', '0.2']) == 4;"
        "verbs = [name for name in sys.modules if name.startswith('nodepool.cli.commands.')];"
        f"assert verbs == ['nodepool.cli.commands.{verb.split(maxsplit=1)[0]}'], verbs;"
        "loaded = {'pydantic', 'yaml', 'aiohttp', 'nats.js', 'nodepool.contract.events'};"
        "loaded &= set(sys.modules); assert not loaded, loaded"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert "no NATS server responds" in done.stderr
    assert done.returncode == 0, done.stderr


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


def test_a_view_includes_objects_by_name_label_and_field() -> None:
    view = View(NODEPOOL, ["a", "b", "c"], selector="team=x", fields="metadata.name!=c")

    assert view.includes(pool("a", team="x"))
    assert not view.includes(pool("a", team="y"))
    assert not view.includes(pool("c", team="x"))
    assert not view.includes(pool("d", team="x"))
    assert view.missing([pool("b")]) == ["a", "c"]


def item(name: str, **spec: object) -> Item:
    return Item(name, {**pool(name), "spec": spec})


def test_objects_are_sorted_by_a_field_numbers_by_their_value() -> None:
    items = [item("a", n=10), item("b", n=9), item("c"), item("d", n=9.0), item("e", n=10**400)]

    chosen = View(NODEPOOL, sort_by=".spec.n").choose_items(items)

    assert [each.key for each in chosen] == ["c", "b", "d", "a", "e"]


def test_a_field_to_sort_by_that_no_object_has_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match=r"--sort-by: no object has the field '\.spec\.x'"):
        View(NODEPOOL, sort_by=".spec.x").choose_items([item("a"), item("b")])


def test_labels_are_columns_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    view = View(NODEPOOL, label_columns=["example.com/team"], show_labels=True)

    view.print_items(
        view.table(), [Item("a", pool("a", **{"example.com/team": "x"})), Item("b", pool("b"))]
    )

    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split()[-2:] == ["TEAM", "LABELS"]
    assert first.split()[-2:] == ["x", "example.com/team=x"]
    assert second.split()[-2:] == ["<none>", "<none>"]


def test_objects_of_all_clusters_are_shown_with_their_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = View(NODEPOOL, everywhere=True)

    view.print_items(view.table(), [Item("acme.prod.a", pool("a"), ("acme", "prod"))])

    header, first = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["ORG", "CLUSTER", "NAME"]
    assert first.split()[:3] == ["acme", "prod", "a"]


NAMES = Format("name")


def test_a_watch_prints_the_list_in_order_and_then_each_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = Changes(View(NODEPOOL, format=NAMES))
    changes.take(Item("b", pool("b")))
    changes.take(Item("a", pool("a")))
    assert capsys.readouterr().out == ""

    assert changes.finish_list() == []
    assert capsys.readouterr().out.split() == [f"{NODEPOOL.full}/a", f"{NODEPOOL.full}/b"]

    changes.take(Item("c", pool("c")))
    assert capsys.readouterr().out.split() == [f"{NODEPOOL.full}/c"]


def test_a_watch_for_changes_alone_leaves_the_list_out(capsys: pytest.CaptureFixture[str]) -> None:
    changes = Changes(View(NODEPOOL, format=NAMES), only_changes=True)
    changes.take(Item("a", pool("a")))
    changes.finish_list()
    changes.take(Item("b", pool("b")))

    assert capsys.readouterr().out.split() == [f"{NODEPOOL.full}/b"]


def test_a_watch_prints_a_deleted_object_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    changes = Changes(View(NODEPOOL, ["a"], NAMES))
    changes.take(Item("a", pool("a")))
    changes.take(Item("gone", None))
    changes.finish_list()
    capsys.readouterr()

    changes.take(Item("a", None))
    changes.take(Item("a", None))

    assert capsys.readouterr().out.split() == [f"{NODEPOOL.full}/a"]


def test_a_watch_for_an_object_that_does_not_exist_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = Changes(View(NODEPOOL, ["a", "b"], NAMES))
    changes.take(Item("a", pool("a")))

    assert changes.finish_list() == ["b"]
    assert capsys.readouterr().out == ""


def test_a_query_without_types_includes_every_event() -> None:
    event = ObjectEvent(START, "Warning", "CWOverQuota", "NodePool", "a", "quota", "over")

    assert Query("", "", frozenset(), timedelta()).includes(event)
    assert Query("", "", frozenset({"warning"}), timedelta()).includes(event)
    assert not Query("", "", frozenset({"normal"}), timedelta()).includes(event)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], f"nodepool {VERSION}\n"),
        (["-o", "yaml"], f"clientVersion:\n  version: {VERSION}\n"),
        (["-o=jsonpath={.clientVersion.version}"], VERSION),
    ],
)
def test_the_version_of_the_command_is_printed_as_a_text_or_an_object(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["version", "--client", *arguments]) == 0
    assert capsys.readouterr() == (printed, "")


@pytest.mark.parametrize("word", ["version", "--version"])
def test_the_version_of_the_command_is_printed_without_a_server(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"nats://127.0.0.1:{free_port()}"

    assert run(["--url", url, "--request-timeout", "0.2", word]) == 0

    printed = capsys.readouterr()
    assert printed.out == f"nodepool {VERSION}\n"
    assert printed.err.startswith(
        f"only the version of the command is known: no NATS server responds at {url}"
    )


def test_options_without_a_command_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--org", "acme"]) == 2
    assert capsys.readouterr() == ("", "error: Missing command (see nodepool --help)\n")


def invalid(spec: NodePoolSpec, zone: str, fault: SpecFault, message: str) -> NodePoolValidated:
    """Return the verdict on a NodePool with a fault."""
    return NodePoolValidated(
        org="o",
        cluster="c",
        pool="a",
        uid="u",
        zone=zone,
        generation=1,
        version=1,
        created=START,
        spec=spec,
        reason=Validated.INVALID,
        fault=fault,
        message=message,
    )


def test_a_warning_with_a_suggestion_is_two_sentences() -> None:
    spec = NodePoolSpec(instance_type="t", target_nodes=1)
    message = "instance type t is not a known instance type; did you mean tt?"

    stored = invalid(spec, "Z", "InstanceType", message)

    assert warning(stored) == (
        "nodepool/a is stored but Invalid: instance type t is not a known instance type; did you"
        " mean tt? instanceType cannot be changed, so delete it with 'nodepool delete nodepool a'"
        " and create it anew"
    )


@pytest.mark.parametrize(
    ("instance_type", "zone", "fixed"),
    [
        ("gd-8xh100ib-i128", "US-WEST-02B", "computeClass"),
        ("gb200-4x", "US-EAST-01A", "instanceType and computeClass"),
    ],
)
def test_a_warning_about_a_spot_nodepool_that_never_gets_a_node_says_what_cannot_be_changed(
    instance_type: str, zone: str, fixed: str
) -> None:
    spec = NodePoolSpec(
        instance_type=instance_type, target_nodes=1, compute_class=ComputeClass.SPOT
    )

    stored = invalid(spec, zone, "Settings", "it is not offered")

    assert warning(stored) == (
        f"nodepool/a is stored but Invalid: it is not offered; {fixed} cannot be changed, so"
        " delete it with 'nodepool delete nodepool a' and create it anew"
    )


def test_the_doctor_says_what_it_found_without_loading_what_makes_traces() -> None:
    script = (
        "import sys; from nodepool.cli.app import run;"
        f"assert run(['doctor', '--url', 'nats://127.0.0.1:{free_port()}']) == 1;"
        "sys.exit('opentelemetry' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert "nothing listens" in done.stdout
    assert done.returncode == 0, done.stderr
