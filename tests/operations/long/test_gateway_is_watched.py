"""The panels and alerts about the gateway have data in a real Prometheus beside a gateway."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from bus.front_door import ORG, OTHER, ask, front_door, said
from bus.harness import connected, launched, until
from dashboards.gateway import GATEWAY
from dashboards.system import SYSTEM
from nodepool.local.ports import HOST
from support.grafana import everything, filled, queries_of
from support.prometheus import Prometheus, config, has_values, program, prometheus
from testbed.ports import free_port

PATIENCE_S = 60.0
SENT = 20
BUDGET = 36_000
"""So many bytes have room for one command about an unknown NodePool, which uses 90 % of them."""


def flat_panels(running: Prometheus, since: float) -> list[str]:
    """The panels about the gateway with a query of which nothing was ever above 0."""
    known = {**everything(SYSTEM), "__rate_interval": "8s"}
    return [
        asked.panel
        for asked in queries_of(SYSTEM, GATEWAY)
        if not has_values(
            running.query_range(filled(asked.expr, known), since, time.time(), 1), above=0
        )
    ]


@pytest.mark.timeout(4 * PATIENCE_S)
async def test_what_the_door_stores_and_refuses_is_shown_and_noticed(tmp_path: Path) -> None:
    program()
    # given a gateway with a small budget, and a Prometheus that watches it
    began, port = time.time(), free_port()
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps(config({f"{HOST}:{port}": "gateway"}, "1s")))
    options = f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'prometheus'}"
    with front_door(tmp_path) as door:
        async with connected(door.url), door.user("edith") as client, door.user("ulrich") as other:
            members, budget = str(door.members), str(BUDGET)
            with (
                launched(
                    "gateway",
                    door,
                    tmp_path,
                    port,
                    members_file=members,
                    gateway_bytes_per_hour=budget,
                ) as gateway,
                prometheus(tmp_path, *options) as running,
            ):
                await until(lambda: is_ready(running), PATIENCE_S)

                # when an organisation uses up its budget, and another one asks and waits
                subject = f"np.cmd.{ORG}.prod.train.ScaleNodePool"
                content = b'{"targetNodes": 3}'
                replies = [
                    said(await client.request(subject, content, timeout=10)) for _ in range(SENT)
                ]
                since = (await ask(other, "List", OTHER, kind="nodepools"))["revision"]
                watch = asyncio.create_task(
                    ask(other, "Watch", OTHER, kind="nodepools", since=since, waitSeconds=5)
                )
                assert (await watch)["changes"] == []

                # then every panel shows something
                await until(lambda: flat_panels(running, began) == [], PATIENCE_S)
                # and it is noticed who has used up its budget, and only that
                pending = 'ALERTS{alertname="NodepoolGatewayBudgetNearlyUsed"}'
                await until(lambda: bool(running.query(pending)), PATIENCE_S)
                orgs = {each["metric"]["org"] for each in running.query(pending)}
                assert gateway.process.poll() is None
    assert orgs == {ORG}
    assert [reply.get("reason", "stored") for reply in replies] == [
        "stored",
        *["TooManyRequests"] * (SENT - 1),
    ]


def is_ready(running: Prometheus) -> bool:
    """Whether Prometheus sees that the gateway is ready."""
    return bool(running.query('nodepool_ready{nodepool_service="gateway"} == 1'))
