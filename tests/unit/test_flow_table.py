from dataclasses import replace

from nodepool.contract.services import SERVICES
from nodepool.engine.flow import table
from support.sample_service import SERVICE, PaperDelivered
from support.services import services


def test_a_row_names_what_a_service_hears_by_speaker_and_what_it_says() -> None:
    heading, rule, row = table([SERVICE], {"printer": "Which page is next?"}).splitlines()

    assert heading == "| Service | Question | Commands heard | Events heard | Says |"
    assert rule == "| --- | --- | --- | --- | --- |"
    assert row == (
        "| **printer** | Which page is next? "
        "| `PrintNow`, `Enqueue` "
        "| clock: `Wake`<br>desk: `PagesAdded`<br>store: `PaperDelivered` "
        "| `JobQueued`, `PagePrinted`, `PaperJammed`, `CommandAccepted`, `CommandRefused` |"
    )


def test_what_a_service_has_not_is_an_empty_cell() -> None:
    silent = replace(SERVICE, name="store", hears=PaperDelivered, says=None, reconciler=None)

    *_, row = table([silent], {}).splitlines()

    assert row == "| **store** |  |  | store: `PaperDelivered` |  |"


def test_services_stand_in_the_order_in_which_they_are_given() -> None:
    rows = table(services(), {}).splitlines()[2:]

    assert len(rows) == len(services()) == len(SERVICES)
    assert [row.split("**")[1] for row in rows] == [service.name for service in services()]
