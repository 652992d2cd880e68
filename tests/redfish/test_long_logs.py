"""A long log of a controller is read at both ends, within bounds, and is no reason against it."""

import pytest

from metal.host.redfish.controllers import Controllers
from metal.host.redfish.limits import Limits
from metal.host.redfish.long_logs import both_ends, newest_paths, skip_to_last
from metal.reading import Part, Reading
from redfish.emulator import Emulator
from redfish.front import ENVIRONMENT, Document, Front, fronted
from redfish.test_readings import add_log, entry

LOG = frozenset({Part.LOG})


def entries_of(front: Front) -> str:
    """The path of the entries of a log that a machine was given."""
    return f"/redfish/v1/Managers/{front.machine.id}/Entries"


@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_a_log_with_more_entries_than_are_read_shows_its_newest_ones(
    machines: Emulator, is_newest_first: bool
) -> None:
    async with fronted(machines.machine()) as front:
        entries = [entry(number, f"entry {number}", number) for number in range(50)]
        add_log(front, *(entries[::-1] if is_newest_first else entries))
        async with Controllers(Limits(entries=8), ENVIRONMENT) as controllers:
            reading = await controllers.open(front.place()).read(LOG, entries=2)

        assert isinstance(reading, Reading)
        assert [each.message for each in reading.log or ()] == ["entry 48", "entry 49"]
        assert reading.unread == ()


async def test_a_log_that_is_larger_than_an_answer_may_be_is_no_reason_against_the_machine(
    machines: Emulator,
) -> None:
    async with fronted(machines.machine()) as front:
        add_log(front, *(entry(number, "x" * 200, 1) for number in range(200)))
        async with Controllers(Limits(answer_bytes=20_000), ENVIRONMENT) as controllers:
            reading = await controllers.open(front.place()).read(LOG)

        assert isinstance(reading, Reading)
        assert (reading.log, reading.unread) == (None, ())


async def test_entries_that_are_listed_by_their_paths_are_asked_for_up_to_a_bound(
    machines: Emulator,
) -> None:
    async with fronted(machines.machine()) as front:
        paths = [f"/entry/{number}" for number in range(5)]
        add_log(front, *({"@odata.id": path} for path in paths))
        front.documents |= {path: entry(n, f"entry {n}", n) for n, path in enumerate(paths)}
        async with Controllers(Limits(members=2), ENVIRONMENT) as controllers:
            reading = await controllers.open(front.place()).read(frozenset({Part.LOG}))

        assert isinstance(reading, Reading)
        assert [each.message for each in reading.log or ()] == ["entry 3", "entry 4"]
        assert reading.unread == ()


async def test_a_log_that_never_ends_is_read_up_to_its_bound(machines: Emulator) -> None:
    async with fronted(machines.machine()) as front:
        add_log(front, entry(1, "one", 1))
        path = entries_of(front)
        front.documents[path]["Members@odata.nextLink"] = path
        async with Controllers(Limits(pages=4), ENVIRONMENT) as controllers:
            reading = await controllers.open(front.place()).read(frozenset({Part.LOG}))

        assert isinstance(reading, Reading)
        assert front.received.count(f"GET {path}") == 4
        assert reading.unread == ()


def paged(count: object, page: str = "/log?$skip=50") -> tuple[str, Document]:
    """The path of the second page of a log, and its first page."""
    return page, {"Members": [{}] * 50, "Members@odata.count": count}


@pytest.mark.parametrize(
    ("count", "page", "path"),
    [
        (100, "/log?$skip=50", "/log?$skip=50"),
        (200, "/log?$skip=50", "/log?$skip=50"),
        (201, "/log?$skip=50", "/log?$skip=51"),
        (9_000, "/log?$skip=50", "/log?$skip=8850"),
        (9_000, "/log?$top=50&%24skip=50&a=1", "/log?$top=50&%24skip=8850&a=1"),
        (9_000, "/log?$skiptoken=7", "/log?$skiptoken=7"),
        (9_000, "", ""),
        (10**30, "/log?$skip=50", "/log?$skip=50"),
        (-1, "/log?$skip=50", "/log?$skip=50"),
        (9e9, "/log?$skip=50", "/log?$skip=50"),
        (None, "/log?$skip=50", "/log?$skip=50"),
        (9_000, "/log?$skip=0", "/log?$skip=0"),
    ],
)
def test_the_last_pages_of_a_log_follow_its_first_one(count: object, page: str, path: str) -> None:
    assert skip_to_last(*paged(count, page), pages=3) == path


def test_both_ends_of_a_list_are_within_its_bound() -> None:
    members = [{"Id": str(number)} for number in range(5)]

    assert both_ends({"Members": members}, 5) == members
    assert both_ends({"Members": members}, 3) == [members[0], members[3], members[4]]
    assert both_ends({"Members": [7, *members]}, 2) == [members[4]]
    assert both_ends({"Members": "none"}, 2) == []


def test_the_newest_of_bare_entries_are_those_with_the_highest_numbers() -> None:
    assert newest_paths(["/l/10", "/l/9", "/l/11"], 2) == ["/l/10", "/l/11"]
    assert newest_paths(["", "/l/b", "/l/a"], 1) == ["/l/a"]
