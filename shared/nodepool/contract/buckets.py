"""The key-value buckets of the read model: one for each kind of object."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

Bucket = Literal["nodepools", "nodes", "quotas", "capacity", "machines", "clusters"]
BUCKETS: Final[tuple[Bucket, ...]] = get_args(Bucket)
"""Every bucket; the stream of a bucket is named `KV_<bucket>`."""
PARTS: Final[Mapping[str, int]] = {
    "nodepools": 3,
    "nodes": 3,
    "quotas": 3,
    "capacity": 2,
    "machines": 2,
    "clusters": 2,
}
"""How many parts the keys of a bucket have; the last is a name, and may hold dots of its own."""
