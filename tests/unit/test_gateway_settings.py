"""The settings of the gateway, its members file, and its page of metrics."""

import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.host.members import LOOK_S, MembersFile
from gateway.host.settings import BUDGETS, read_gateway
from gateway.host.telemetry import ASKED, COMMANDS, Telemetry
from nodepool.contract.actors import Actor, Member, Sender, members_text
from nodepool.contract.gateway_metrics import BYTES, BYTES_MAX, OF_THE_GATEWAY, WAITING
from nodepool.contract.metrics import Sample
from nodepool.host.exposition import Wanted
from nodepool.host.settings import OTHERS, Settings, SettingsError

SAMPLES = (Sample(WAITING, (COMMANDS,), 1), Sample(BYTES, ("acme",), 7), Sample(BYTES_MAX, (), 9))


def test_every_budget_is_a_setting() -> None:
    assert {f"GATEWAY_{name.upper()}" for name in BUDGETS} == {
        name for name in OTHERS if name.startswith("GATEWAY_")
    }


def test_the_settings_are_read_and_shown() -> None:
    given = {"NODEPOOL_MEMBERS_FILE": "/m.json", "NODEPOOL_GATEWAY_WATCHES": "7"}

    settings = read_gateway(given)

    assert (settings.members_file, settings.watches) == ("/m.json", 7)
    assert settings.list_settings()["watches"] == 7


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "NODEPOOL_MEMBERS_FILE is not set"),
        ({"NODEPOOL_GATEWAY_WATCHES": "0"}, "must be a number from 1 on"),
        ({"NODEPOOL_GATEWAY_WATCHES": "many"}, "must be a number from 1 on"),
        ({"NODEPOOL_GATEWAY_WATCH": "1"}, "did you mean NODEPOOL_GATEWAY_WATCHES"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(given: dict[str, str], text: str) -> None:
    members = {"NODEPOOL_MEMBERS_FILE": "/m.json"} if given else {}

    with pytest.raises(SettingsError, match=text):
        read_gateway({**members, **given})


def test_the_members_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    # given a members file, and a clock
    now = [0.0]
    path = tmp_path / "members.json"
    telemetry = Telemetry(Settings(log_file=os.devnull), lambda: ())
    members = MembersFile(str(path), lambda: now[0], telemetry.log)
    alice = Member("acme", "alice", "alice", "editor")

    # when it does not exist, is written, is broken, and is written again
    seen = []
    for text in ("", members_text([alice]), "{", members_text([])):
        if text:
            path.write_text(text)
        now[0] += LOOK_S
        seen.append((len(members.current()), bool(members.fault)))
    telemetry.close()

    # then the last members that could be read are known, and a fault says what is wrong
    assert seen == [(0, True), (1, False), (1, True), (0, False)]


def test_a_user_who_is_let_in_between_two_looks_is_known_at_once(tmp_path: Path) -> None:
    # given members that have just been read
    path = tmp_path / "members.json"
    path.write_text(members_text([]))
    telemetry = Telemetry(Settings(log_file=os.devnull), lambda: ())
    members = MembersFile(str(path), lambda: 0.0, telemetry.log)
    alice = Sender("acme", "alice", "10.0.0.7")
    assert members.actor_of(alice) is None

    # when a user is let in, and sends something in the same moment
    path.write_text(members_text([Member("acme", "alice", "alice", "editor")]))
    actor = members.actor_of(alice)
    telemetry.close()

    # then the user is known
    assert actor == Actor("acme", "alice", "editor", "10.0.0.7")


def test_every_metric_of_the_gateway_is_on_its_page_as_the_list_has_it() -> None:
    # given a gateway that has taken a command, and answered a query that it does not know
    telemetry = Telemetry(Settings(log_file=os.devnull), lambda: SAMPLES)
    telemetry.begin_org(COMMANDS, "acme")
    telemetry.count(COMMANDS, "acme", "np.door.cmd.acme.prod.train.ScaleNodePool", "", 0.01)
    telemetry.count(ASKED, "acme", "np.door.api.acme.x" * 9, "Invalid", 0.01)
    telemetry.count(ASKED, "acme", "np.door.api.acme.Watch", "", 20.0)

    # when it is scraped
    pieces = telemetry._page.pieces(Wanted())
    telemetry.close()
    assert pieces is not None
    page = b"".join(pieces).decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}

    # then every metric is there, with its type and help, and a sender makes no series
    for metric in OF_THE_GATEWAY:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert {frozenset(sample.labels) - {"le"} for sample in family.samples} == {
            frozenset({"nodepool_service", *metric.labels})
        }
    assert 'query="unknown",result="Invalid"} 1.0' in page
    assert 'nodepool_gateway_seconds_count{endpoint="queries",nodepool_service="gateway"} 1' in page
