"""Three years in which hundreds of NodePools, machines and organisations come and go."""

import pytest

from flow.test_growth import CLUSTERS, RECEIPTS_MAX, grown
from nodepool.state import receipts
from support.churn import Churn

pytestmark = pytest.mark.timeout(600)


def test_after_three_years_of_much_churn_services_keep_no_more_than_after_a_year(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receipts, "RECEIPTS_MAX", RECEIPTS_MAX)
    churn = Churn()

    for _ in range(12):
        churn.month(pools=10)
    early = churn.sizes()
    for _ in range(24):
        churn.month(pools=10)
    late = churn.sizes()

    assert set(grown(early, late)) == CLUSTERS
    assert churn.world.replay_differs() == []
