"""Every command of every runbook does what it should, against a control plane at work."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from bus.harness import ReplicaProcess, connected, until
from nodepool.client import Client
from nodepool.contract.services import SERVICES
from nodepool.nats.log import api
from operations.observed import PATIENCE_S, Observed, observed
from operations.stories import LIMIT, is_parked, machines, manifest, nodes, set_up
from support.constants import H100, ZONE
from support.runbooks import ALERTS, OF_AGENTS, RUNBOOKS, commands

TYPED = [page for page in ALERTS if page not in OF_AGENTS]
"""Those of agents are typed beside a cluster of Kubernetes, in tests/kube/test_agent_watched.py."""
FEWER = [page for page in TYPED if page.stem == "NodepoolReplicaMissing"]
"""What is typed where every service is at work, one of them with fewer replicas."""
Results = Mapping[tuple[str, str], tuple[int, "subprocess.CompletedProcess[str]"]]
"""How the lines of pages ended, and which exit code they should have."""
TABLE = "NODEPOOL_RUNBOOKS_TABLE"
"""A variable with the file to which the exit code of each command is written."""
BOUNDS: Mapping[str, str] = {
    "curl": " --max-time ",
    "promtool": "timeout 10 ",
    "kubectl": " --request-timeout=",
}
"""What ends a program that waits for a process that hangs; `nodepool` ends by itself."""
SHELL = """\
set -u
nodepool() { "$PYTHON" -m nodepool.cli "$@"; }
"""


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_page_has_every_part_and_something_to_type(page: Path) -> None:
    headings = re.findall(r"^(#+ .*)$", re.sub(r"(?s)```.*?```", "", page.read_text("utf-8")), re.M)
    if page.stem == "README":
        return
    assert headings == [
        f"# {page.stem}",
        "## Impact",
        "## Find the cause",
        "## What to do",
        "## When it ends",
    ]
    assert commands(page)


@pytest.mark.parametrize("page", ALERTS, ids=lambda page: page.stem)
def test_a_page_says_what_to_look_for_and_how(page: Path) -> None:
    # given the part that leads to a cause
    part = page.read_text("utf-8").partition("## Find the cause\n")[2].partition("\n## ")[0]

    # then it begins with words, and has commands
    words, block, _ = part.partition("```bash\n")
    assert words.strip().endswith((".", "?", ":"))
    assert block


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_no_command_of_a_page_waits_for_a_process_that_hangs(page: Path) -> None:
    assert [
        line
        for line, _ in commands(page)
        for program, bound in BOUNDS.items()
        if program in line.split() and bound not in line
    ] == []


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_link_of_a_page_leads_to_a_page(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).is_file()] == []


@pytest.mark.timeout(600)
def test_every_command_of_every_page_but_those_of_agents_ends_as_it_should(tmp_path: Path) -> None:
    # given a control plane with a NodePool, and what an alert would name
    with observed(tmp_path) as it:
        node = asyncio.run(with_a_pool(it))
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NODEPOOL_URL": it.server.url,
            "NODEPOOL_ORG": "acme",
            "NODEPOOL_CLUSTER": "prod",
            "PROMETHEUS": it.prometheus.url,
            "INSTANCE": it.addresses[0],
            "SERVICE": "quota",
            "ORG": "acme",
            "CLUSTER": "prod",
            "POOL": "training",
            "ZONE": ZONE,
            "TYPE": H100,
            "NODE": node,
            "LIMIT": str(LIMIT),
            "FOLDER": str(tmp_path / "backup"),
        }

        (letter,) = typed("nodepool dead list -o name", environment).stdout.split()
        environment["POSITION"] = letter.removeprefix("deadletter/")

        # when one of two replicas is gone, and the page for that is typed
        stop(it.replicas[len(SERVICES)])
        ended = dict(results(FEWER, environment))

        # and when a service is not at work, and all others are
        stop(it.replicas[SERVICES.index("autoscaler")])
        ended |= results([page for page in TYPED if page not in FEWER], environment)
    write_table(ended)

    # then each ends with the exit code that the page says, and says nothing of an error
    assert [
        (*place, done.returncode, done.stdout + done.stderr)
        for place, (code, done) in ended.items()
        if done.returncode != code
    ] == []
    # and what Prometheus is asked for has no fault
    assert [place for place, (_, done) in ended.items() if "error" in done.stderr] == []
    # and what failed, and why, is among what the page says to look at where it matters
    for stem, causes in CAUSES.items():
        seen = "".join(done.stdout for (page, _), (_, done) in ended.items() if page == stem)
        assert {cause: cause in seen for cause in causes} == dict.fromkeys(causes, True)
    # and a backup is whole
    assert (tmp_path / "backup").is_dir()


CAUSES: Mapping[str, Sequence[str]] = {
    "NodepoolNodesDoNotJoin": ("the machine did not boot", "BootFailed"),
    "NodepoolBootsFail": ("the machine did not boot", "BootFailed"),
    "NodepoolDeadLetters": ("Invented",),
    "NodepoolCommandsFail": ("Invented",),
}
"""What has gone wrong beside the control plane, and on which pages it has to be found."""


def results(pages: Sequence[Path], environment: Mapping[str, str]) -> Results:
    """What the commands of these pages do; each is typed once."""
    lines = dict.fromkeys(line for page in pages for line, _ in commands(page))
    ended = {line: typed(line, environment) for line in lines}
    return {
        (page.stem, line): (code, ended[line]) for page in pages for line, code in commands(page)
    }


def write_table(ended: Results) -> None:
    """Writes page, exit code and command, one a line, to the file that a variable names."""
    path = os.environ.get(TABLE)
    if path is not None:
        lines = [
            f"{page:34} {done.returncode} {line}\n" for (page, line), (_, done) in ended.items()
        ]
        Path(path).write_text("".join(lines), encoding="utf-8")


def typed(line: str, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """A line of a page as a shell takes it."""
    return subprocess.run(
        ["bash", "-c", SHELL + line],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


async def with_a_pool(it: Observed) -> str:
    """Brings a NodePool to its target; one of its Nodes.

    There is a dead letter as well, and each other machine fails to boot once: the NodePool wants
    one Node more, and gets none of them.
    """
    await until(it.is_ready, PATIENCE_S)
    async with Client(it.server.url, org="acme", cluster="prod", timeout_s=PATIENCE_S) as client:
        await set_up(client, ZONE, (H100,))
        await client.nodepools.apply(manifest("training", H100, 2))
        await client.nodepools.wait("training", "AtTarget", timeout_s=PATIENCE_S)
        node, *_ = own = await nodes(client, "training")
        for machine in await machines(client, H100):
            if machine not in own:
                await client.fleet.break_machine(ZONE, machine, "boot", times=2)
        await client.nodepools.scale("training", 3)
    async with connected(it.server.url) as connection:
        await api.publish(connection, "np.cmd.acme.prod.training.Invented", b"{}")
        await until(lambda: is_parked(connection), PATIENCE_S)
    await until(partial(have_failed, it), PATIENCE_S)
    return node


def stop(replica: ReplicaProcess) -> None:
    """Ends a replica as a container engine does, and waits until it is gone."""
    os.kill(replica.pid, signal.SIGTERM)
    asyncio.run(until(lambda: is_gone(replica), PATIENCE_S))


def is_gone(replica: ReplicaProcess) -> bool:
    """Whether it does not respond any more."""
    try:
        replica.page("/livez")
    except OSError:
        return True
    return False


def have_failed(it: Observed) -> bool:
    """Whether Prometheus has seen machines fail to boot, and by how much their number grew."""
    grown = "increase(nodepool:nodepool_node_failures_total:max{cause='BootFailed'}[1h]) > 0"
    return bool(it.prometheus.query(grown))
