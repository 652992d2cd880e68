"""The copies of the log and the storage of an account, by what the server says."""

import pytest

from nodepool.nats.log.figures import Storage, copies, storage_of

CURRENT: dict[str, object] = {"name": "b", "current": True}
LAGGING: dict[str, object] = {"name": "c", "current": False, "lag": 7}
OFFLINE: dict[str, object] = {"name": "c", "current": False, "offline": True}


@pytest.mark.parametrize(
    ("followers", "states"),
    [
        (None, (1, 0, 0)),
        ([], (1, 0, 0)),
        ([CURRENT, CURRENT], (3, 0, 0)),
        ([CURRENT, LAGGING], (2, 1, 0)),
        ([OFFLINE, OFFLINE], (1, 0, 2)),
        ([CURRENT | {"offline": True}], (1, 0, 1)),
    ],
)
def test_the_copies_of_the_log_are_those_of_its_leader_and_its_followers(
    followers: list[dict[str, object]] | None, states: tuple[int, int, int]
) -> None:
    cluster: dict[str, object] = {"leader": "a", "replicas": followers} if followers else {}

    assert tuple(copies(cluster).values()) == states
    assert list(copies(cluster)) == ["current", "lagging", "offline"]


GIB = 1 << 30
TIERS: dict[str, object] = {
    "R1": {"storage": 5, "limits": {"max_storage": GIB}},
    "R3": {"storage": 7, "limits": {"max_storage": -1}},
}


@pytest.mark.parametrize(
    ("account", "replicas", "storage"),
    [
        ({"storage": 9, "limits": {"max_storage": GIB}}, 1, Storage(9, GIB)),
        ({"storage": 9, "limits": {"max_storage": -1}}, 1, Storage(9, None)),
        ({"storage": 9, "limits": {"max_storage": 0}, "tiers": TIERS}, 1, Storage(5, GIB)),
        ({"storage": 9, "limits": {"max_storage": 0}, "tiers": TIERS}, 3, Storage(7, None)),
        ({"storage": 9, "limits": {"max_storage": 0}, "tiers": {}}, 3, Storage(9, None)),
        ({}, 1, Storage(0, None)),
    ],
)
def test_the_storage_of_an_account_is_that_of_its_tier_where_it_has_tiers(
    account: dict[str, object], replicas: int, storage: Storage
) -> None:
    assert storage_of(account, replicas) == storage
