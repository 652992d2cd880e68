"""What is read of a machine through its controller."""

from datetime import UTC, datetime

import pytest

from metal.host.redfish.controllers import Controllers
from metal.host.redfish.limits import Limits
from metal.reading import (
    BootOverride,
    BootTarget,
    Health,
    Part,
    Processor,
    Reading,
    ResetType,
    Trip,
)
from metal.replies import Done, Failure, Trouble
from nodepool.contract.real_machines import Power
from redfish.emulator import SYSTEMS, Emulator
from redfish.front import ENVIRONMENT, PASSWORD, USER, Document, Front, fronted

NO_PARTS: frozenset[Part] = frozenset()
GPU = {"Id": "GPU_1", "ProcessorType": "GPU", "Model": "H100", "Status": {"Health": "OK"}}
CPU = {"Id": "CPU_1", "ProcessorType": "CPU", "Model": "Xeon", "Status": {"Health": "Critical"}}
EMPTY = {"Id": "GPU_2", "ProcessorType": "GPU", "Status": {"State": "Absent"}}


def add_log(front: Front, *entries: Document) -> None:
    """Give the manager of a machine a log, as many vendors do."""
    manager = f"/redfish/v1/Managers/{front.machine.id}"
    front.documents |= {
        manager: {"LogServices": {"@odata.id": f"{manager}/LogServices"}},
        f"{manager}/LogServices": {
            "Members": [{"@odata.id": f"{manager}/Audit"}, {"@odata.id": f"{manager}/Sel"}]
        },
        f"{manager}/Audit": {"Id": "Audit", "Entries": {"@odata.id": "/nowhere"}},
        f"{manager}/Sel": {"Id": "Sel", "Entries": {"@odata.id": f"{manager}/Entries"}},
        f"{manager}/Entries": {"Members": list(entries)},
    }


def entry(number: int, message: str, second: int) -> Document:
    """An entry of a log."""
    created = f"2026-11-29T12:00:{second:02}+01:00"
    return {"Id": str(number), "Created": created, "Severity": "Warning", "Message": message}


async def test_a_machine_is_read_as_the_emulator_shows_it(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        reading = await controllers.open(front.place()).read()

    assert reading == Reading(
        power=Power.OFF,
        health=Health.OK,
        memory_health=Health.OK,
        boot=BootOverride("Hdd", "Continuous", "UEFI"),
        controller_version="1.00",
        macs=(front.machine.mac,),
        trips=(),
    )


async def test_a_machine_that_was_switched_on_is_read_as_on_in_the_end(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())

        assert await controller.reset(ResetType.ON) == Done()

        reading = await controller.read(NO_PARTS)
        while isinstance(reading, Reading) and reading.power is Power.OFF:
            reading = await controller.read(NO_PARTS)
        assert isinstance(reading, Reading)
        assert reading.power is Power.ON
        assert front.carried_out == ["On"]


async def test_a_boot_override_is_set_once_and_read_back(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        controller = controllers.open(front.place())

        refusal = await controller.set_boot(BootTarget.UEFI_HTTP, "https://boot.example/node.efi")

        assert refusal is None
        reading = await controller.read(NO_PARTS)
        assert isinstance(reading, Reading)
        uri = "https://boot.example/node.efi"
        assert reading.boot == BootOverride("UefiHttp", "Once", "UEFI", uri)


async def test_a_controller_that_forgets_the_boot_override_shows_it(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine(), forgets_boot=True) as front:
        controller = controllers.open(front.place())

        assert await controller.set_boot(BootTarget.PXE) is None

        reading = await controller.read(NO_PARTS)
        assert isinstance(reading, Reading)
        assert reading.boot is not None
        assert reading.boot.enabled != "Once"


async def test_a_target_that_a_controller_does_not_offer_is_refused_and_not_sent(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        offered = {"BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe"]}
        front.changes[front.machine.id] = lambda system: system["Boot"].update(offered)

        refusal = await controllers.open(front.place()).set_boot(BootTarget.UEFI_HTTP)

        text = "the controller does not offer UefiHttp; it offers Pxe"
        assert refusal == Failure(Trouble.REFUSED, text)
        assert not any(each.startswith("PATCH") for each in front.received)


@pytest.mark.parametrize("offered", [["a\nb\x1b[31m", 7, None, {}], ["x" * 5_000] * 50])
async def test_whatever_a_controller_offers_is_told_in_one_line(
    machines: Emulator, controllers: Controllers, offered: list[object]
) -> None:
    async with fronted(machines.machine()) as front:
        boot = {"BootSourceOverrideTarget@Redfish.AllowableValues": offered}
        front.changes[front.machine.id] = lambda system: system["Boot"].update(boot)

        refusal = await controllers.open(front.place()).set_boot(BootTarget.PXE)

        assert isinstance(refusal, Failure)
        assert refusal.text.isprintable()
        assert len(refusal.text) < 1_000


async def test_a_controller_that_takes_no_image_is_sent_none(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.changes[front.machine.id] = lambda system: system["Boot"].pop("HttpBootUri")

        refusal = await controllers.open(front.place()).set_boot(BootTarget.UEFI_HTTP, "https://b")

        assert isinstance(refusal, Failure)
        assert "has no HttpBootUri; leave the image to DHCP" in refusal.text


@pytest.mark.parametrize("version", ['"1"', 'W/"1"'])
async def test_a_boot_override_is_set_for_the_version_that_was_read(
    machines: Emulator, controllers: Controllers, version: str
) -> None:
    async with fronted(machines.machine(), version=version) as front:
        assert await controllers.open(front.place()).set_boot(BootTarget.PXE) is None

        assert front.boot["BootSourceOverrideTarget"] == "Pxe"


async def test_a_boot_override_is_set_where_the_controller_takes_it(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        settings = f"{front.path}/SD"
        front.documents[settings] = {"Boot": {"BootSourceOverrideTarget": "None"}}
        link = {"SettingsObject": {"@odata.id": settings}}
        front.changes[front.machine.id] = lambda system: system.update({"@Redfish.Settings": link})

        await controllers.open(front.place()).set_boot(BootTarget.PXE)

        assert front.received[-1] == f"PATCH {settings}"


async def test_processors_are_read_with_their_health_and_empty_slots_are_not(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.add_part("Processors", CPU, GPU, EMPTY)

        reading = await controllers.open(front.place()).read(frozenset({Part.PROCESSORS}))

        assert isinstance(reading, Reading)
        gpu = Processor("GPU_1", "GPU", "H100", Health.OK)
        assert reading.processors == (Processor("CPU_1", "CPU", "Xeon", Health.CRITICAL), gpu)
        assert reading.gpus == (gpu,)


async def test_members_that_come_with_their_collection_are_not_asked_for(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.add_part("Processors")
        front.documents[f"{front.path}/Processors"] = {"Members": [CPU, GPU]}
        features = {"ExpandQuery": {"Levels": True, "NoLinks": True}}
        front.changes["/v1/"] = lambda root: root.update(ProtocolFeaturesSupported=features)
        controller = controllers.open(front.place())
        await controller.read(NO_PARTS)
        front.received.clear()

        reading = await controller.read(frozenset({Part.PROCESSORS}))

        assert isinstance(reading, Reading)
        assert len(reading.processors or ()) == 2
        assert front.received == [f"GET {front.path}", f"GET {front.path}/Processors"]


async def test_the_version_of_the_bios_is_read(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.changes[front.machine.id] = lambda system: system.update(BiosVersion="2.4.1")

        reading = await controllers.open(front.place()).read(NO_PARTS)

        assert isinstance(reading, Reading)
        assert reading.bios_version == "2.4.1"


async def test_the_firmware_of_the_controller_and_of_gpus_is_read_if_that_is_asked_for(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.add_part("Processors", CPU, GPU | {"FirmwareVersion": "96.00"})
        controller = controllers.open(front.place())
        parts = frozenset({Part.PROCESSORS, Part.CONTROLLER})

        short, reading = await controller.read(NO_PARTS), await controller.read(parts)

        assert isinstance(short, Reading)
        assert isinstance(reading, Reading)
        assert (short.controller_version, reading.controller_version) == (None, "1.00")
        assert [each.firmware_version for each in reading.processors or ()] == ["", "96.00"]


async def test_a_version_that_could_not_be_read_is_not_a_version_that_is_not_told(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        manager = "/redfish/v1/Managers/58893887-8974-2487-2389-841168418919"
        front.changes[front.machine.id] = lambda system: system["Links"].update(
            ManagedBy=[{"@odata.id": manager}]
        )
        front.status = {manager: 500}

        reading = await controllers.open(front.place()).read(frozenset({Part.CONTROLLER}))

        assert isinstance(reading, Reading)
        assert reading.controller_version is None
        assert [f"{manager} was answered with 500" in each for each in reading.unread] == [True]


async def test_a_controller_that_says_nothing_of_itself_tells_no_version(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.changes[front.machine.id] = lambda system: system["Links"].pop("ManagedBy")

        reading = await controllers.open(front.place()).read(frozenset({Part.CONTROLLER}))

        assert isinstance(reading, Reading)
        assert (reading.controller_version, reading.unread) == ("", ())


async def test_a_hot_sensor_is_read_as_a_trip(machines: Emulator, controllers: Controllers) -> None:
    async with fronted(machines.machine()) as front:
        front.changes["/Thermal"] = lambda it: it["Temperatures"][0].update(ReadingCelsius=46)

        reading = await controllers.open(front.place()).read(frozenset({Part.THERMAL}))

        assert isinstance(reading, Reading)
        assert reading.trips == (Trip("CPU Temp", 46.0, 45.0),)


async def test_the_newest_entries_above_a_position_are_read_without_credentials(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        told = f"{USER} has logged in with {PASSWORD}; the stewardship begins"
        add_log(front, entry(3, told, 9), entry(1, "one", 7), entry(2, "two", 7))
        controller = controllers.open(front.place())

        first = await controller.read(frozenset({Part.LOG}), entries=2)

        assert isinstance(first, Reading)
        assert first.log is not None
        shown = "*** has logged in with ***; the stewardship begins"
        assert [each.message for each in first.log] == ["two", shown]
        assert first.log[0].position.moment == datetime(2026, 11, 29, 11, 0, 7, tzinfo=UTC)
        later = await controller.read(frozenset({Part.LOG}), above=first.log[0].position)
        assert isinstance(later, Reading)
        assert [each.message for each in later.log or ()] == [shown]


@pytest.mark.parametrize("before", [241, 243, 250, 255])
async def test_no_piece_of_a_password_is_left_where_a_text_is_cut(
    machines: Emulator, controllers: Controllers, before: int
) -> None:
    async with fronted(machines.machine()) as front:
        add_log(front, entry(1, "x" * before + PASSWORD, 1))

        reading = await controllers.open(front.place()).read(frozenset({Part.LOG}))

        assert isinstance(reading, Reading)
        assert [each.message for each in reading.log or ()] == [("x" * before + "***")[:256]]


async def test_a_part_that_cannot_be_read_leaves_the_rest_readable(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        front.add_part("Processors", GPU)
        front.status["/Processors"] = 500

        reading = await controllers.open(front.place()).read()

        assert isinstance(reading, Reading)
        assert reading.processors is None
        assert reading.macs == (front.machine.mac,)
        path = f"GET {front.path}/Processors"
        assert reading.unread == (f"{path} was answered with 500: *** of *** is not liked",)


@pytest.mark.parametrize("status", [404, 500])
async def test_a_gpu_that_cannot_be_read_is_not_a_gpu_that_is_not_there(
    machines: Emulator, controllers: Controllers, status: int
) -> None:
    async with fronted(machines.machine()) as front:
        front.add_part("Processors", GPU, GPU)
        front.status["/Processors/1"] = status

        reading = await controllers.open(front.place()).read(frozenset({Part.PROCESSORS}))

        assert isinstance(reading, Reading)
        assert reading.processors is None
        assert len(reading.unread) == 1


async def test_a_collection_beyond_its_bound_is_not_taken_for_a_part_of_it(
    machines: Emulator,
) -> None:
    async with fronted(machines.machine()) as front:
        front.add_part("Processors", *([GPU] * 5))
        async with Controllers(Limits(members=3), ENVIRONMENT) as controllers:
            reading = await controllers.open(front.place()).read(frozenset({Part.PROCESSORS}))

        assert isinstance(reading, Reading)
        assert reading.processors is None
        path = f"{front.path}/Processors"
        assert reading.unread == (f"{path} has more members than are read",)
        assert f"GET {path}/3" not in front.received


async def test_a_log_that_could_not_be_found_once_is_looked_for_again(
    machines: Emulator, controllers: Controllers
) -> None:
    async with fronted(machines.machine()) as front:
        add_log(front, entry(1, "one", 1))
        front.status["/LogServices"] = 500
        controller = controllers.open(front.place())
        first = await controller.read(frozenset({Part.LOG}))
        front.status.clear()

        second = await controller.read(frozenset({Part.LOG}))

        assert isinstance(first, Reading)
        assert isinstance(second, Reading)
        assert (first.log, len(first.unread)) == (None, 1)
        assert [each.message for each in second.log or ()] == ["one"]


@pytest.mark.parametrize("link", ["http://{}/redfish/v1/", "//{}/redfish/v1/", "@{}/redfish/v1/"])
async def test_a_link_to_another_server_is_not_followed(
    machines: Emulator, controllers: Controllers, link: str
) -> None:
    async with fronted(machines.machine()) as front, fronted(machines.machine()) as other:
        away = {"@odata.id": link.format(f"127.0.0.1:{other.port}")}
        front.changes[front.machine.id] = lambda system: system.update(Processors=away)

        reading = await controllers.open(front.place()).read()

        assert isinstance(reading, Reading)
        assert reading.processors is None
        assert other.received == []


async def test_a_redirection_is_not_followed(machines: Emulator, controllers: Controllers) -> None:
    async with fronted(machines.machine()) as front, fronted(machines.machine()) as other:
        front.status[front.machine.id] = 307
        front.location = f"{other.place().address}/redfish/v1/"

        failure = await controllers.open(front.place()).read()

        assert isinstance(failure, Failure)
        assert failure.trouble is Trouble.REFUSED
        assert "was answered with 307" in failure.text
        assert other.received == []


async def test_several_systems_need_a_name(machines: Emulator, controllers: Controllers) -> None:
    async with fronted(machines.machine()) as front:
        failure = await controllers.open(front.place(system="")).read()

    text = f"the controller has {SYSTEMS} systems; name one with controller.system"
    assert failure == Failure(Trouble.NONSENSE, text)


async def test_the_only_system_needs_no_name(machines: Emulator, controllers: Controllers) -> None:
    async with fronted(machines.machine()) as front:
        only = [{"@odata.id": front.path}]
        front.documents["/redfish/v1/Systems"] = {"Members": only}
        front.changes[front.machine.id] = lambda system: system.update(SerialNumber="SN1")

        reading = await controllers.open(front.place(system="")).read(NO_PARTS)

        assert isinstance(reading, Reading)
        assert reading.serial == "SN1"


@pytest.mark.parametrize("bad", ["", "Fine", "\x00"])
async def test_a_power_state_that_nobody_defines_is_unknown_or_nonsense(
    machines: Emulator, controllers: Controllers, bad: str
) -> None:
    async with fronted(machines.machine()) as front:
        front.changes[front.machine.id] = lambda system: system.update(PowerState=bad)

        found = await controllers.open(front.place()).read(NO_PARTS)

        if bad == "Fine":
            assert isinstance(found, Reading)
            assert found.power is Power.UNKNOWN
        else:
            assert found == Failure(Trouble.NONSENSE, f"{front.path} has no PowerState")
