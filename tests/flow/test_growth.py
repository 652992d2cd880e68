"""Nothing that a service keeps grows with the age of the log, only with what there is."""

from collections.abc import Mapping

import pytest

from nodepool.state import receipts
from support.churn import Churn, Size

CLUSTERS = {
    "aggregator state.read_model.clusters",
    "capacity state.zones",
    "the bucket clusters",
    "validator state.clusters",
}
"""What grows with each cluster that is registered: it stays so, as no command takes one away."""
RECEIPTS_MAX = 2
"""How many commands a service remembers here: no more than it gets in the first months."""

DIGITS = 8
"""By how many digits the numbers of an entry may be longer."""


def grown(before: Mapping[str, Size], after: Mapping[str, Size]) -> dict[str, tuple[Size, Size]]:
    """Return what has more entries than before, or more bytes than longer numbers take."""
    pairs = {name: (before.get(name, Size()), size) for name, size in after.items()}
    return {
        name: (old, new)
        for name, (old, new) in pairs.items()
        if new.entries > old.entries or new.bytes > old.bytes + DIGITS * (old.entries + 1)
    }


@pytest.fixture
def churn(monkeypatch: pytest.MonkeyPatch) -> Churn:
    """A cell whose services remember few commands, so that they remember as many each month."""
    monkeypatch.setattr(receipts, "RECEIPTS_MAX", RECEIPTS_MAX)
    return Churn()


def test_after_half_a_year_of_churn_services_keep_no_more_than_after_its_first_months(
    churn: Churn,
) -> None:
    for _ in range(2):
        churn.month()
    early = churn.sizes()

    for _ in range(4):
        churn.month()
    late = churn.sizes()

    assert set(grown(early, late)) == CLUSTERS
    assert late["validator state.clusters"].entries == 1 + 1 + 6
    assert churn.world.replay_differs() == []
