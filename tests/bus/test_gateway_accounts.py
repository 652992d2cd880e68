"""The gateway with the generated accounts, where its user has no more rights than it needs."""

import json
from pathlib import Path

from bus.accounts import ORG, OTHER_ORG, guarded_server
from bus.guarded_gateway import MANIFEST, ask, at_work, user
from bus.harness import PATIENCE_S
from nodepool.auth.accounts import OPERATOR
from support.constants import H100, ZONE


async def test_the_rights_of_each_user_are_enough_and_the_server_denies_nothing(
    tmp_path: Path,
) -> None:
    # given the generated accounts, with the streams and a gateway
    with guarded_server(tmp_path) as server:
        await server.until_ready()
        await server.provision()
        async with (
            at_work(server, tmp_path, "validator", "aggregator", "capacity"),
            user(server, "agent") as agent,
            user(server, "editor") as editor,
            user(server, "viewer") as viewer,
            user(server, "other-owner") as other,
            user(server, OPERATOR) as operator,
        ):
            # when users send what their roles allow, and ask for what they may see
            registered = await ask(agent, f"np.cmd.{ORG}.prod._.RegisterCluster", zone=ZONE)
            applied = await ask(editor, f"np.cmd.{ORG}.prod.train.ApplyNodePool", **MANIFEST)
            got = await ask(agent, f"np.api.{ORG}.List", kind="nodepools", cluster="prod")
            listed = await ask(
                viewer, f"np.api.{ORG}.List", kind="nodes", notOlderThan=applied.get("position", 0)
            )
            events = await ask(viewer, f"np.api.{ORG}.Events", cluster="prod")
            explained = await ask(viewer, f"np.api.{ORG}.Explain", cluster="prod", pool="none")
            found = await ask(
                viewer,
                f"np.api.{ORG}.FindCapacity",
                selections=[{"instanceType": H100, "count": 1}],
            )
            foreign = await ask(other, f"np.api.{OTHER_ORG}.List", kind="nodepools")
            info = json.loads(
                (await operator.request("$SRV.INFO.gateway", timeout=PATIENCE_S)).data
            )

        # then all is answered
        answers = (registered, applied, got, listed, events, found, foreign)
        assert [answer for answer in answers if "reason" in answer] == []
        assert explained["reason"] == "NotFound"
        assert foreign["items"] == []
        assert [each["name"] for each in info["endpoints"]] == [
            "commands",
            "observations",
            "queries",
        ]
        assert server.violations() == []
