"""The page of operators about machines: what is free, and what has none left."""

from console.view.fleet import Stock, build_fleet, read_stock
from support.constants import A100, H100, ZONE


def test_machines_add_up_by_zone_and_types_without_free_ones_are_named() -> None:
    stocks = [
        Stock("US-WEST-04A", H100, used=1, held=0, asked=0, triage=0, free=4),
        Stock(ZONE, H100, used=6, held=2, asked=0, triage=1, free=0),
        Stock(ZONE, A100, used=0, held=0, asked=0, triage=0, free=3),
    ]

    page = build_fleet(stocks)

    assert page.title == "7 of 17 machines are free"
    assert page.summary == f"None is free of {H100} in {ZONE}."
    zones = [(zone, [each.instance_type for each in stocks]) for zone, stocks in page.zones]
    assert zones == [(ZONE, [A100, H100]), ("US-WEST-04A", [H100])]
    bar = [(part.look, part.start, part.count) for part in page.zones[0][1][1].bar]
    assert bar == [("has", 0, 6), ("idl", 6, 2), ("wait", 8, 1)]


def test_many_types_without_free_machines_are_counted() -> None:
    stocks = [Stock(f"Z{n}", H100, used=1, held=0, asked=0, triage=0, free=0) for n in range(5)]

    names = ", ".join(f"{H100} in Z{n}" for n in range(3))
    assert build_fleet(stocks).summary == f"None are free of {names} and 2 more types."
    assert build_fleet([]).title == "There are no machines"


def test_machines_that_are_yet_to_be_held_back_are_apart() -> None:
    document = {"zone": ZONE, "instanceType": H100, "assigned": 3, "free": 0}

    stock = read_stock({**document, "reclaimed": 2, "toReclaim": 5, "triage": "?", "zap": 1})

    assert (stock.held, stock.asked, stock.triage, stock.zap, stock.total) == (2, 3, 0, 1, 6)
    assert sum(part.count for part in stock.bar) == stock.total - stock.free
