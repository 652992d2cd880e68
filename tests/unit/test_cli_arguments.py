"""Flags in the spellings that kubectl's users know."""

import click
import pytest

from nodepool.cli.arguments import OptionalValue, normalise_arguments

PARAMS = (
    click.Option(["-o", "--output"]),
    click.Option(["-f", "--filename"], multiple=True),
    click.Option(["--wait/--no-wait"], default=True),
    click.Option(["--all", "everything"], is_flag=True),
    OptionalValue(["--dry-run"], implied="server"),
)


@pytest.mark.parametrize(
    ("written", "understood"),
    [
        ("-o=name", "-oname"),
        ("-oname", "-oname"),
        ("--output=name", "--output=name"),
        ("-f=a.yaml -f b.yaml", "-fa.yaml -f b.yaml"),
        ("--wait=false", "--no-wait"),
        ("--wait=True", "--wait"),
        ("--no-wait=false", "--wait"),
        ("--all=true", "--all"),
        ("--all=false", ""),
        ("--dry-run np a", "--dry-run=server np a"),
        ("--dry-run=client np a", "--dry-run=client np a"),
        ("-o -o=name", "-o -o=name"),
        ("--unknown=x -z", "--unknown=x -z"),
        ("a -- -o=name --all=x", "a -- -o=name --all=x"),
        ("np -o", "np -o"),
    ],
)
def test_flags_are_understood_in_every_spelling_of_kubectl(written: str, understood: str) -> None:
    assert normalise_arguments(written.split(), PARAMS) == understood.split()


def test_a_switch_is_either_true_or_false() -> None:
    with pytest.raises(click.UsageError, match="--all: 'maybe' is neither true nor false"):
        normalise_arguments(["--all=maybe"], PARAMS)
