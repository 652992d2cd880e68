"""What commands have printed is printed again, whatever has happened since."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bus import cli
from bus.cli import Done, Nodepool, commands
from bus.harness import until

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
COMMANDS = (
    ("get", "np,no,qt,cap,cl,ma", "-o", "yaml"),
    ("events", "--since", "5m", "-o", "json"),
    ("explain", "np", "batch"),
    ("describe", "np", "training", "--hide-events"),
)


def seen(nodepool: Nodepool, *at: str) -> Sequence[Done]:
    """What each command prints."""
    return [nodepool(*words, *at) for words in COMMANDS]


def seen_in_quiet(nodepool: Nodepool) -> tuple[str, Sequence[Done]]:
    """What each command prints as soon as that no longer changes, and a time at which it did."""
    before: Sequence[Done] = ()
    while True:
        time = datetime.now(UTC)
        after = seen(nodepool)
        if before == after:
            return time.isoformat(), after
        before = after


def ended(archive: Path) -> datetime:
    """When the last message of an archive was stored."""
    names = sorted((archive / "manifests").glob("*.json"))
    text = json.loads(names[-1].read_text())["ended"] if names else "2000-01-01T00:00:00+00:00"
    return datetime.fromisoformat(text)


def test_what_was_printed_at_a_moment_is_printed_again_from_the_archive_and_from_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    options = ("--archive", str(archive), "--examples", str(EXAMPLES))

    with cli.running(tmp_path / "data", *options) as up:
        nodepool = commands(up.port, capsys)
        # given what commands print while nothing happens, before and after a change
        first, before = seen_in_quiet(nodepool)
        assert nodepool("scale", "np", "batch", "--target", "1").code == 0
        second, after = seen_in_quiet(nodepool)
        assert before != after
        assert nodepool("scale", "np", "training", "--target", "1").code == 0

        # when it is asked of both moments, of the log alone and of whatever the archive has so far
        for source in ([], ["--archive", str(archive)]):
            assert seen(nodepool, "--at", first, *source) == before
            assert seen(nodepool, "--at", second, *source) == after
        asyncio.run(until(lambda: ended(archive) > datetime.fromisoformat(second), 60))

        # and the difference of both moments is what has changed
        changed = nodepool("diff", "--from", first, "--to", second, "np/batch")
        assert changed.code == 1
        lines = changed.out.splitlines()
        assert "-  targetNodes: 2" in lines
        assert "+  targetNodes: 1" in lines
        assert not any("resourceVersion" in line for line in lines if line[0] in "+-")
        assert nodepool("diff", "--from", first, "--to", second, "np", "training").code == 0
        assert "+  targetNodes: 1" in nodepool("diff", "--from", second).out
        unknown = nodepool("diff", "--from", first, "np/nothing")
        assert (unknown.code, unknown.err) == (
            2,
            'error: nodepool "nothing" not found at either moment\n',
        )

    # then the archive alone says the same, without a server
    nodepool = commands(1, capsys)
    assert seen(nodepool, "--at", second, "--archive", str(archive)) == after
    assert seen(nodepool, "--at", first, "--archive", str(archive)) == before
    archived = ("--archive", str(archive))
    assert nodepool("diff", "--from", first, "--to", second, "np/batch", *archived) == changed
