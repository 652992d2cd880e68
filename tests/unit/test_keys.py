from nodepool.contract.keys import (
    PoolKey,
    as_pool_key,
    cluster_key,
    ledger_key,
    ledger_parts,
    machine_key,
    machine_parts,
    node_key,
    offering_key,
    offering_parts,
    pool_key,
    pool_path,
)


def test_a_key_is_the_tokens_of_an_object_general_to_particular() -> None:
    assert cluster_key("acme", "prod") == "acme/prod"
    assert pool_key("acme", "prod", "train.v1") == "acme/prod/train.v1"
    assert node_key("acme", "prod", "g3779b1") == "acme/prod/g3779b1"
    assert machine_key("US-EAST-02A", "g3779b1") == "US-EAST-02A/g3779b1"
    assert offering_key("US-EAST-02A", "gb300-4x") == "US-EAST-02A/gb300-4x"
    assert ledger_key("acme", "US-EAST-02A", "gb300-4x") == "acme/US-EAST-02A/gb300-4x"


def test_a_key_gives_back_what_it_was_made_of() -> None:
    assert pool_path(pool_key("acme", "prod", "train.v1")) == ("acme", "prod", "train.v1")
    assert machine_parts(machine_key("US-EAST-02A", "g1")) == ("US-EAST-02A", "g1")
    assert offering_parts(offering_key("US-EAST-02A", "x")) == ("US-EAST-02A", "x")
    assert ledger_parts(ledger_key("acme", "US-EAST-02A", "x")) == ("acme", "US-EAST-02A", "x")


def test_only_the_path_of_a_nodepool_is_the_key_of_one() -> None:
    assert as_pool_key("acme/prod/train") == PoolKey("acme/prod/train")
    for other in ("", "acme", "acme/prod", "acme/prod/_", "acme/_/_", "fleet/US-EAST-02A/g1"):
        assert as_pool_key(other) is None, other
