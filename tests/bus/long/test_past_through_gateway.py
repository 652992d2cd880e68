"""The past through the gateway: each organisation sees its own, as the operator sees it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from bus.archives import archived_to, end_of
from bus.harness import ReplicaProcess, launched
from bus.test_cli_through_gateway import (  # noqa: F401  # They are fixtures.
    ORG,
    OTHER,
    Installation,
    User,
    cluster,
    installation,
    manifest,
    user,
)
from nodepool.auth.accounts import ARCHIVER, OPERATOR
from testbed.ports import free_port

pytest.importorskip("pyarrow", reason="needs the package pyarrow")

MOMENTS = 2
COMMANDS = (
    "get np,no,qt,cl -o wide",
    "get np,no,qt,cl -o yaml",
    "get np train --show-labels",
    "get events --since 2h",
    "describe np,no,qt,cl",
    "describe np gone missing",
    "explain np train",
    "explain np train -o yaml",
    "events",
    "events --for np/train --types Normal -o json",
)


@contextmanager
def archiver(installation: Installation, archive: Path) -> Iterator[ReplicaProcess]:  # noqa: F811
    """An archiver as a process."""
    with launched(
        "archiver",
        installation,
        installation.folder,
        free_port(),
        nkey_file=str(installation.identities.key_file(ARCHIVER)),
        archive=str(archive),
        archive_segment_bytes="40000",
        archive_quiet_seconds="1",
    ) as process:
        yield process


@pytest.mark.usefixtures("cluster")
def test_a_user_sees_at_any_moment_what_the_operator_sees_of_the_organisation(
    installation: Installation,  # noqa: F811
    user: User,  # noqa: F811
    tmp_path: Path,
) -> None:
    owner, operator, other = user("olga", ORG), user(OPERATOR), user("ulrich", OTHER)
    archive, chance = tmp_path / "archive", Random(3)
    with archiver(installation, archive), installation.gateway(archive=str(archive)):
        # given an organisation in which something has happened
        for name in ("train", "gone"):
            assert owner("apply", "-f", manifest(tmp_path, name, 1)).code == 0
        assert owner("scale", "np", "train", "--replicas", "3").code == 0
        owner("wait", "np/train", "--for", "condition=AtTarget", "--timeout", "60s")
        assert owner("scale", "np", "train", "--replicas", "9").code == 0
        assert owner("delete", "np", "gone", "--wait", "--timeout", "60s").code == 0
        end = int(operator("log", "query", "SELECT max(position) FROM log", *CSV, *to(archive)).out)
        chosen = [*chance.sample(range(1, end), MOMENTS), end, end_of(archive)]

        # when the user and the operator look at the same moments
        # by position, and one by its time
        sql = f"SELECT epoch_us(time) FROM log WHERE position = {chosen[0]}"
        time = int(operator("log", "query", sql, *CSV, *to(archive)).out)
        stamp = (EPOCH + timedelta(microseconds=time)).isoformat()
        for moment in (*map(str, chosen), stamp):
            for line in COMMANDS:
                at = (*line.split(), "--at", moment)
                seen = owner(*at)
                of_all = operator("--org", ORG, "--cluster", "prod", *at, *to(archive))

                # then both see the same
                assert seen == of_all, (moment, line)

        # and whoever belongs to another organisation sees nothing of it
        for line in COMMANDS:
            done = other(*line.split(), "--at", str(end))
            assert not [text for text in (done.out, done.err) if ORG in text or "CWN" in text]


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CSV = ("-o", "csv", "--no-headers")


def to(archive: Path) -> tuple[str, str]:
    """The option that names the archive."""
    return "--archive", str(archive)


@pytest.mark.usefixtures("cluster")
def test_a_moment_that_cannot_be_shown_is_refused_with_the_reason(
    installation: Installation,  # noqa: F811
    user: User,  # noqa: F811
    tmp_path: Path,
) -> None:
    owner, operator = user("olga", ORG), user(OPERATOR)
    archive = tmp_path / "archive"
    # given a gateway without an archive, then it says so
    with installation.gateway():
        said = owner("get", "np", "--at", "5")
        assert said.code == 1
        assert "the gateway shows no past: it has no archive; ask the operator" in said.err

    with archiver(installation, archive), installation.gateway(archive=str(archive)):
        asyncio.run(archived_to(archive, 1))
        # given a position that there is not, then the reason is that which the operator sees
        refused, unknown = (owner("get", "np", "--at", each) for each in ("99999999", "0"))
        assert (refused.code, unknown.code) == (1, 1)
        assert "there is no position 0: " in unknown.err
        known = operator("get", "np", "--at", "99999999", *to(archive)).err
        assert known.removeprefix("error: ").partition(" to ")[0] in refused.err
        # and so it is with a time before the log
        assert "nothing is known of 2001" in owner("get", "np", "--at", "2001-01-01").err

    # given an archive that is none, then nothing is said of where it is
    with installation.gateway(archive=str(tmp_path / "nothing")):
        said = owner("get", "np", "--at", "5")
        assert said.code == 1
        assert "the archive cannot be read; tell the operator of the platform" in said.err
        assert str(tmp_path) not in said.err
