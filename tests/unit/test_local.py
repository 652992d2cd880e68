"""The parts of running everything on one machine that need neither a server nor a service."""

import re
import socket
import time
from pathlib import Path

import pytest

from nodepool.auth.accounts import OPERATOR
from nodepool.auth.rights import operator_rights
from nodepool.contract.commands import MACHINES_MAX
from nodepool.local.config import PENDING_MAX, QUEUE_MAX, server_config
from nodepool.local.demo import DATA_CENTRE, Machines, additions
from nodepool.local.directory_lock import DirectoryLock
from nodepool.local.disk import DiskWatch
from nodepool.local.errors import ServerError, UpError
from nodepool.local.listening import Listening
from nodepool.local.ports import HOST, claimed_ports
from nodepool.local.up import METRICS_PORT, advice

DATA_DIR = Path('/data with "quotes"')
KEY = Path("operator.nk")


def config(monitor_port: int | None = None) -> str:
    where = (DATA_DIR, DATA_DIR / "server.log")
    return server_config("np", *where, Listening(4222), monitor_port)


def test_the_server_listens_on_the_loopback_address_only() -> None:
    assert 'listen: "127.0.0.1:4222"' in config().splitlines()


def test_the_server_syncs_each_message_before_it_acknowledges_it() -> None:
    assert "  sync_interval: always" in config().splitlines()


def test_the_server_holds_a_bounded_number_of_messages_that_are_not_stored_yet() -> None:
    assert f"  max_buffered_msgs: {QUEUE_MAX}" in config().splitlines()


def test_the_server_cuts_off_a_client_for_which_too_much_waits() -> None:
    assert f"max_pending: {PENDING_MAX}" in config().splitlines()


def test_a_path_in_the_configuration_is_quoted() -> None:
    lines = config().splitlines()

    assert r'  store_dir: "/data with \"quotes\""' in lines
    assert r'log_file: "/data with \"quotes\"/server.log"' in lines


def test_the_server_is_monitored_only_on_request() -> None:
    assert "http:" not in config()
    assert 'http: "127.0.0.1:8222"' in config(8222).splitlines()


def test_a_taken_port_is_skipped() -> None:
    with socket.create_server((HOST, 0)) as listener:
        taken: int = listener.getsockname()[1]

        with claimed_ports(2, taken) as ports:
            assert len(set(ports)) == 2
            assert min(ports) > taken


def test_ports_that_are_claimed_are_given_to_nobody_else_before_they_are_listened_on() -> None:
    # given ports that one has claimed, and that nothing listens on yet
    with claimed_ports(8, METRICS_PORT) as ours:
        # when another claims some, from the same number on
        with claimed_ports(8, METRICS_PORT) as theirs:
            # then they are others
            assert not {*ours} & {*theirs}

        # and the first can listen on all of its own
        for port in ours:
            socket.create_server((HOST, port)).close()

    # and what nobody claims any more is given away again
    with claimed_ports(8, METRICS_PORT) as ports:
        assert ports == ours


def test_too_few_free_ports_are_an_error_in_one_line() -> None:
    with pytest.raises(UpError, match="no 8 free ports from 65535"):
        claimed_ports(8, 65_535).__enter__()


def test_a_data_directory_is_locked_by_one_at_a_time(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire(time.monotonic())

    with pytest.raises(ServerError, match=r"is in use by process \d+: stop that one first"):
        second.acquire(time.monotonic())

    first.release()
    second.acquire(time.monotonic())
    second.release()


def test_many_machines_are_added_by_several_commands() -> None:
    commands = list(additions(Machines("t", 2 * MACHINES_MAX + 1, boot_s=3)))

    assert [command.count for command in commands] == [MACHINES_MAX, MACHINES_MAX, 1]
    assert {command.boot_seconds for command in commands} == {3}


def test_the_demo_has_machines_of_different_types() -> None:
    types = [machines.instance_type for machines in DATA_CENTRE]

    assert len(set(types)) == len(types)


def test_the_advice_names_the_server_the_key_the_organisation_and_the_cluster() -> None:
    text = advice("nats://127.0.0.1:5000", "acme", "prod", Path("my data/operator.nk"))

    shown = "--nkey 'my data/operator.nk' --inbox-prefix _INBOX_operator"
    assert f"nats context save nodepool --server nats://127.0.0.1:5000 {shown} --select" in text
    assert """nats pub np.cmd.acme.prod.training.ScaleNodePool '{"targetNodes": 12}'""" in text


def test_the_operator_may_do_what_the_advice_says() -> None:
    text, rights = advice("nats://127.0.0.1:5000", "acme", "prod", KEY), operator_rights(OPERATOR)

    subjects = dict(re.findall(r"nats (pub|sub) '?([^\s']+)", text))
    assert rights.may_publish(subjects["pub"])
    assert rights.may_subscribe(subjects["sub"])


def test_the_advice_is_what_another_terminal_needs_to_find_this_control_plane() -> None:
    usual = advice("nats://127.0.0.1:4222", "demo", "demo", KEY)
    other = advice("nats://127.0.0.1:5000", "acme", "demo", KEY)

    assert "In another terminal, try\n" in usual
    assert (
        "In another terminal, after 'export NODEPOOL_URL=nats://127.0.0.1:5000 NODEPOOL_ORG=acme',"
        " try\n"
    ) in other


FULL = b"[ERR] JetStream failed to store a msg on stream '$G > NODEPOOL': no space left on device\n"
GARBAGE = b"[ERR] 127.0.0.1:40670 - cid:6 - Client parser ERROR: proto='no space left on device'\n"


@pytest.mark.parametrize(
    ("parts", "is_full"),
    [
        pytest.param([FULL], True, id="what the server says"),
        pytest.param([GARBAGE], False, id="what a client has sent"),
        pytest.param([GARBAGE + FULL], True, id="both"),
        pytest.param([FULL[:70], FULL[70:]], True, id="a line that was being written"),
        pytest.param([GARBAGE[:40], GARBAGE[40:]], False, id="the same of a client"),
        pytest.param([GARBAGE * 20_000], False, id="more than is read at once"),
    ],
)
def test_a_disk_is_full_where_the_server_says_so_and_not_where_a_client_does(
    tmp_path: Path, parts: list[bytes], is_full: bool
) -> None:
    # given a server's log that is watched
    path = tmp_path / "nats-server.log"
    path.write_bytes(b"[INF] Server is ready\n")
    watch = DiskWatch(tmp_path, path)

    # when more is written to it, in several parts
    for part in parts:
        with path.open("ab") as log:
            log.write(part)
        watch.check()

    # then only what the server itself says counts
    assert watch.is_full is is_full
