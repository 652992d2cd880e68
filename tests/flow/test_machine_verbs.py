"""`nodepool machine`: what operators see of real machines, and what they can have done to them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodepool.cli.app import run
from nodepool.contract.events import ControllerReported, MachineDeclared
from nodepool.contract.messages import Event, wrap
from nodepool.contract.real_machines import Power
from nodepool.contract.subjects import subject_of
from nodepool.local.server import NatsServer
from support.constants import H100
from support.live import LiveHarness
from support.services import services

LAB, NAME = "LAB-01A", "r1-m1"
PLACE = f"{LAB}/{NAME}"
Machine = Callable[..., tuple[int, str, str]]


@pytest.fixture
def site(server: NatsServer, tmp_path: Path) -> Iterator[LiveHarness]:
    """A real server with a machine that is in production, off, and never wiped."""
    harness = LiveHarness(server, tmp_path / "services.log", services("metal", "aggregator"))
    try:
        declared = MachineDeclared(
            zone=LAB, machine=NAME, instance_type=H100, wipes=False, digest="d"
        )
        say(harness, declared)
        say(harness, ControllerReported(zone=LAB, machine=NAME, digest="d", power=Power.OFF))
        harness.documents("machines")
        yield harness
        assert harness.replay_differs() == []
    finally:
        harness.close()


@pytest.fixture
def machine(site: LiveHarness, server: NatsServer, capsys: pytest.CaptureFixture[str]) -> Machine:
    """Runs one `nodepool machine` command: its exit code, its output and its error output."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(["--url", server.url, "machine", *arguments])
        site.run_until_idle()
        site.documents("machines")  # Once the read model has been written.
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def say(harness: LiveHarness, event: Event) -> None:
    """Publishes what the driver of the machines has found."""
    envelope = wrap(event, id=f"r{len(harness.entries())}", source="redfish")
    harness.publish(subject_of(event, "redfish"), envelope.encode())


def status(machine: Machine) -> dict[str, object]:
    """The status of the machine, as JSON."""
    _, out, _ = machine("list", "-o", "json")
    (item,) = json.loads(out)["items"]
    found: dict[str, object] = item["status"]
    return found


def test_machines_are_listed_and_described(machine: Machine) -> None:
    code, listed, _ = machine("list", "-o", "wide")
    _, described, _ = machine("describe", PLACE)

    heading, row = (line.split() for line in listed.splitlines())
    assert code == 0
    assert heading[:6] == ["NAME", "ZONE", "INSTANCE", "TYPE", "STATE", "POWER"]
    assert row[:5] == [NAME, LAB, H100, "Free", "Off"]
    assert "power Off" in described
    assert "declared as" in described


def test_a_machine_that_is_not_there_is_an_error_with_what_is_close(machine: Machine) -> None:
    code, out, error = machine("describe", f"{LAB}/r1-m2")

    assert (code, out) == (1, "")
    assert error.startswith(f'error: machine "{LAB}/r1-m2" not found')


def test_the_power_of_a_machine_in_service_is_changed_only_in_maintenance(
    machine: Machine,
) -> None:
    # given a machine in service, whose power is refused
    code, _, error = machine("power", "on", PLACE)
    assert code == 1
    assert "the machine is in service: reboot its Node, or take it into maintenance first" in error

    # when people take it into maintenance
    taken = machine("maintain", "in", PLACE, "--reason", "a new cable")
    again = machine("maintain", "in", PLACE, "--reason", "a new cable")
    powered = machine("power", "on", PLACE)

    # then they may power it on, and everybody sees why it is away
    assert taken == (0, f"machine/{NAME} in maintenance\n", "")
    assert again == (0, f"machine/{NAME} unchanged\n", "")
    assert powered == (0, f"machine/{NAME} power on requested\n", "")
    shown = status(machine)
    assert shown["maintenance"]["reason"] == "a new cable"  # type: ignore[index]  # It is a map.
    assert "request 1: on" in str(shown["log"])


def test_a_machine_comes_out_of_maintenance_and_is_verified(machine: Machine) -> None:
    machine("maintain", "in", PLACE)

    out = machine("maintain", "out", PLACE)
    verified = machine("verify", PLACE)

    assert out == (0, f"machine/{NAME} out of maintenance\n", "")
    assert verified == (0, f"machine/{NAME} verification requested\n", "")


def test_a_machine_that_is_not_declared_is_refused_with_what_to_do(machine: Machine) -> None:
    code, _, error = machine("verify", f"{LAB}/r1-m9")

    assert code == 1
    assert "is not a known machine: declare it in the inventory" in error


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("power", "off", "US-EAST-02A/g1"), "belong to the provider fleet: name a zone of metal"),
        (("verify", "LAB-1A/m"), "LAB-1A is not a known zone; did you mean LAB-01A?"),
        (("verify", NAME), "must be ZONE/MACHINE"),
        (("verify", f"{PLACE}/x"), f"ZONE/MACHINE: '{PLACE}/x' must be ZONE/MACHINE"),
        (("verify", f"{LAB}/.."), "ZONE/MACHINE: name '..' must be"),
        (("power", "down", PLACE), "'down' is not one of"),
        (("maintain", "out", PLACE, "--reason", "x"), "--reason: has no meaning with out"),
        (("maintain", "in", PLACE, "--reason", "x" * 1_025), "--reason: has 1025 characters"),
    ],
)
def test_what_cannot_be_a_real_machine_is_refused_before_anything_is_sent(
    arguments: tuple[str, ...], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["--url", "nats://127.0.0.1:1", "machine", *arguments])

    assert code == 2
    assert fault in capsys.readouterr().err
