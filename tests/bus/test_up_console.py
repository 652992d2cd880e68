"""`nodepool up --console`, twice: its link signs in the user of this machine; changes stay."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from bus.cli import commands, running
from bus.consoles import Browser
from bus.test_console import read_until
from nodepool.local.ports import BLOCK
from testbed.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
SHOWN = ("batch", "services", "training")
LINK = re.compile(r"(http://127\.0\.0\.1:[0-9]+)/login\?token=\S+")


async def test_a_second_start_prints_a_link_that_signs_in_and_leaves_all_as_it_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of a block of ports, the console takes the first that is free.
    port = free_port(following=BLOCK - 1)
    options = ("--console", "--examples", str(EXAMPLES))
    owners, printed = list[list[str]](), list[str]()
    for start in range(2):
        # given a control plane on this machine with its console
        with running(tmp_path, *options, NODEPOOL_CONSOLE_PORT=str(port)) as up:
            printed = up.printed
            link = LINK.search("\n".join(printed))
            assert link is not None, printed

            # and the console is where the setting says, or on the next ports if those are in use
            assert int(link[1].rpartition(":")[2]) >= port

            # when the link that was printed is opened, then it signs in
            browser = Browser(link[1])
            assert (await browser.get(link[0])).status == 303
            await read_until(browser, "/nodepools", *(f'data-name="{name}"' for name in SHOWN))
            await read_until(browser, "/organisation", "This role may send:", "US-EAST-04A")

            # and one of the examples is scaled before the second start
            if not start:
                scale = ("scale", "np", "training", "--target", "12")
                scaled = await asyncio.to_thread(commands(up.port, capsys), *scale)
                assert scaled.code == 0, scaled

        # and once it has stopped, no link is left
        assert list((tmp_path / "console" / "links").glob("*")) == []
        users = json.loads((tmp_path / "auth" / "users.json").read_text())
        owners.append(sorted(users["organisations"]["demo"]))

    # and the second start has added nobody
    assert owners[0] == owners[1]
    assert len(owners[0]) == 1
    # and it says that it left the NodePools as they are, and did
    assert [line for line in printed if "NodePools" in line] == [
        f"left the NodePools of demo/demo as they are; 'nodepool apply -f {EXAMPLES}' applies the"
        " 3 examples"
    ]
    assert [line.split()[2] for line in printed if line.startswith("training ")] == ["12"]
