"""What is offered for a word on the command line, as far as no server is needed."""

import pytest

from nodepool.cli.app import cli, run
from nodepool.cli.commands.completion import SCRIPTS
from nodepool.cli.completion import FILES, completions
from testbed.ports import free_port


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("app", ["apply"]),
        ("apply -f ", [FILES]),
        ("apply -R --filename=./pools/", [FILES]),
        ("patch np a --patch-file x", [FILES]),
        ("delete ", ["nodepools", "quotas"]),
        ("label n", ["nodepools"]),
        ("events --for ", ["nodepool/", "node/"]),
        ("scale np a --targ", ["--target"]),
        ("get np,n", ["np,nodes"]),
        ("describe nodepools,no,i", ["nodepools,no,instancetypes"]),
        ("wait -f ", [FILES]),
        ("describe --filename=", [FILES]),
        ("apply -o ", ["json", "yaml", "name", "jsonpath=", "custom-columns="]),
        ("delete np a -o ", ["name"]),
        ("api-resources -o ", ["name", "wide"]),
        ("describe ev", []),
        ("preempt ", ["nodes"]),
        ("drain --forc", ["--force"]),
        ("reboot ", ["nodes"]),
        ("run --rest", ["--restart"]),
        ("rollout status n", ["nodepools"]),
        ("apply --dry-run=", ["--dry-run=none", "--dry-run=client", "--dry-run=server"]),
        ("wait np a --for d", ["delete"]),
        (
            "wait np a --for=condition=AtTarget=",
            [f"--for=condition=AtTarget={status}" for status in ("True", "False", "Unknown")],
        ),
        ("create np a --instance-type gd-8xh1", ["gd-8xh100ib-i128"]),
        ("set quota gd-8xh1", ["gd-8xh100ib-i128"]),
        ("find ", ["capacity"]),
        ("find capacity gd-8xh1", ["gd-8xh100ib-i128="]),
        ("find capacity gb", []),
        ("find capacity a=1 --cr", ["--create"]),
        ("fleet add US-EAST-04", ["US-EAST-04A", "US-EAST-04B"]),
        ("explain np.sp", ["np.spec"]),
        ("explain np.spec.region.", []),
        ("completion ", ["bash", "zsh", "fish"]),
        ("get np --org A* ", []),
    ],
)
def test_the_words_that_may_follow_are_offered(line: str, offered: list[str]) -> None:
    *before, word = line.split(" ")

    assert completions(cli, before, word) == offered


def test_without_a_server_no_names_are_offered_and_nothing_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = f"nats://127.0.0.1:{free_port()}"

    assert run(["__complete", "--", "--url", url, "get", "np", ""]) == 0
    assert capsys.readouterr() == ("\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_the_program(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    assert capsys.readouterr().out == SCRIPTS[shell]
