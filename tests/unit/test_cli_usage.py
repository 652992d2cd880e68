"""Bad usage is found before a server is looked for, in every command."""

from collections.abc import Iterator

import click
import pytest

from nodepool.cli.app import cli, run
from nodepool.cli.settings import common_options
from testbed.ports import free_port

COMMON = {option.name for option in common_options(hidden=True)}
NEED_NO_WORDS = (
    "api-resources",
    "api-versions",
    "audit",
    "auth init",
    "auth list",
    "auth secrets",
    "dead list",
    "demo",
    "doctor",
    "events",
    "machine list",
    "up",
    "usage",
    "users",
    "version",
)
"""The commands that may stand alone."""
WORDS = {
    "ack": "g1",
    "annotate": "np a x=y",
    "auth add-agent": "a b",
    "auth add-organisation": "a",
    "auth add-user": "a b --role viewer",
    "auth can-i": "get np",
    "auth revoke": "a b",
    "auth rotate": "a b",
    "backup": "a",
    "completion": "bash",
    "cordon": "g1",
    "create": "np a",
    "dead replay": "1",
    "dead show": "1",
    "delete": "np a",
    "describe": "np a",
    "drain": "g1",
    "edit": "np a",
    "explain": "np a",
    "find capacity": "gd-8xh100ib-i128=1",
    "fleet add": "US-EAST-04A gd-8xh100ib-i128 1",
    "fleet break": "US-EAST-04A/g1",
    "fleet create-pod": "a b",
    "fleet delete-pod": "a b",
    "fleet repair": "US-EAST-04A/g1",
    "fleet run-pod": "US-EAST-04A/g1 a",
    "fleet stop-pod": "US-EAST-04A/g1 a",
    "get": "np",
    "label": "np a x=y",
    "lock": "g1 --job 1",
    "log query": "FROM",
    "machine describe": "LAB-01A/m",
    "machine maintain": "in LAB-01A/m",
    "machine power": "on LAB-01A/m",
    "machine verify": "LAB-01A/m",
    "patch": "np a -p {}",
    "preempt": "g1",
    "reboot": "g1",
    "reclaim": "gd-8xh100ib-i128 1",
    "register cluster": "a --zone US-EAST-04A",
    "restore": "a",
    "return": "gd-8xh100ib-i128 1",
    "rollout status": "np/a",
    "scale": "np a --target 1",
    "set quota": "gd-8xh100ib-i128 1",
    "skip": "quota",
    "uncordon": "g1",
    "unlock": "g1 --job 1",
    "wait": "np a --for delete",
}
"""What stands after each of the others, so that nothing but an option may be wrong."""


def leaves(command: click.Command, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None, "a command that is listed exists"
        yield from leaves(child, *words, name)


LEAVES = tuple((words, command) for words, command in leaves(cli) if words != "__complete")
CHECKED = tuple(
    f"{words} {WORDS.get(words, '')} {max(option.opts, key=len)}=!!"
    for words, command in LEAVES
    for option in command.params
    if isinstance(option, click.Option)
    and option.name not in COMMON
    and not option.is_flag
    and not isinstance(option.type, click.Path)
    and (option.metavar == "DURATION" or not isinstance(option.type, click.types.StringParamType))
)
"""Each option that takes a duration, a number or one of several words, with none of these."""


@pytest.mark.parametrize(
    "line",
    [
        *(f"{words} --no-such-option" for words, _ in LEAVES),
        *(words for words, _ in LEAVES if words not in NEED_NO_WORDS),
        *CHECKED,
        *(f"{words} nosuch/a" for words in ("cordon", "uncordon", "drain", "reboot", "preempt")),
        *(f"{words} nosuch/a --job 1" for words in ("lock", "unlock")),
        "run --pool a --toleration a:b -- true",
        "fleet create-pod a b --toleration a:b",
        "fleet run-pod US-EAST-04A/g1 b --toleration a:b",
        "find capacity x=",
        "find capacity a=1 b=1 --create c",
        "find capacity a=1 --dry-run",
        "events --types Bad",
        "get np -l a=b=c",
    ],
)
def test_bad_usage_is_found_where_no_server_responds(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["--url", f"nats://127.0.0.1:{free_port()}", *line.split()])

    assert (code, capsys.readouterr().out) == (2, "")


@pytest.mark.parametrize("patch", ["5", "text", "[]"])
def test_a_patch_that_is_no_map_is_found_where_no_server_responds(
    patch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"nats://127.0.0.1:{free_port()}"

    assert run(["--url", url, "patch", "np", "a", "-p", patch]) == 1
    expected = "error: the patch is not a map; write --type json for a list of operations\n"
    assert capsys.readouterr().err == expected
