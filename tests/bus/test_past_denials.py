"""Who may see what of the past: the confinement of the present, for every query and role."""

import json
from pathlib import Path

from bus.accounts import CLUSTER, ORG, OTHER_CLUSTER, OTHER_ORG
from bus.archives import archived_to, end_of
from bus.guarded_gateway import ask, user
from bus.harness import until
from bus.test_attacks_through_the_gateway import (
    GUESSES,
    PLENTY,
    QUESTIONS,
    SECRET,
    SELECTORS,
    asked,
    given_a_node_pool,
)
from bus.test_past_floods import past_at_work
from nodepool.auth.accounts import OPERATOR
from nodepool.contract.queries import QUERIES
from nodepool.nats.log.api import last_position
from nodepool.nats.log.streams import STREAM

OF_THE_PAST = tuple(name for name, kind in QUERIES.items() if "at" in kind.model_fields)
ASKED = [(query, fields) for query, fields in QUESTIONS if query in OF_THE_PAST]


def test_every_query_about_what_the_log_has_said_has_a_past() -> None:
    assert set(OF_THE_PAST) == set(QUERIES) - {"Watch", "Users"}
    assert {query for query, _ in ASKED} == set(OF_THE_PAST) - {"FindCapacity", "Moment"}


async def test_no_query_about_the_past_returns_anything_of_another_organisation(
    tmp_path: Path,
) -> None:
    async with (
        past_at_work(tmp_path, **PLENTY) as (server, _),
        user(server, "agent") as agent,
        user(server, "editor") as editor,
        user(server, "viewer") as viewer,
        user(server, "other-owner") as other,
        user(server, OPERATOR) as operator,
    ):
        # given a NodePool of another organisation, and an archive with it
        await given_a_node_pool(agent, editor, other, lambda: last_position(operator, STREAM))
        end = await last_position(operator, STREAM)
        await archived_to(tmp_path / "archive", end)
        at = {"at": end_of(tmp_path / "archive")}

        # when each role of the organisation asks, then it sees it
        for client in (viewer, editor):
            shown = await ask(client, f"np.api.{ORG}.List", kind="nodepools", **at)
            assert SECRET in json.dumps(shown)

        # when somebody of another one guesses names, selects, and goes on from foreign pages
        queries: list[tuple[str, dict[str, object]]] = [
            (query, asked(fields, guess, guess)) for query, fields in ASKED for guess in GUESSES
        ]
        kind = {"kind": "nodepools"}
        queries += [("List", {**kind, "labelSelector": each}) for each in SELECTORS]
        queries += [("List", {**kind, "continue": each}) for each in GUESSES]
        queries += [("Audit", {}), ("Audit", {"after": 1, "limit": 1000})]
        for query, fields in queries:
            answer = await ask(other, f"np.api.{OTHER_ORG}.{query}", **fields, **at)

            # then no answer has anything of it
            assert answer.get("items", []) == [], (query, fields)
            assert "object" not in answer
            assert "causes" not in answer
            text = json.dumps(answer)
            assert SECRET not in text or SECRET in json.dumps(fields)

        # and the agent of a cluster sees its own, and neither other clusters nor quotas
        own = await ask(agent, f"np.api.{ORG}.List", kind="nodepools", cluster=CLUSTER, **at)
        assert SECRET in json.dumps(own)
        for query, named in ASKED:
            about = asked(named, OTHER_CLUSTER)
            refusal = await ask(agent, f"np.api.{ORG}.{query}", **about, **at)
            assert refusal["reason"] == "Forbidden", (query, about)
        # and the server lets nobody ask for another organisation
        before = len(server.violations())
        await other.publish(f"np.api.{ORG}.List", json.dumps({**kind, **at}).encode())
        await until(lambda: len(server.violations()) > before)
