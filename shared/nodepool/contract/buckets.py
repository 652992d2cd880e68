"""The key-value buckets of the read model: one for each kind of object."""

from typing import Final, Literal, get_args

Bucket = Literal["nodepools", "nodes", "quotas", "capacity", "machines", "clusters"]
BUCKETS: Final[tuple[Bucket, ...]] = get_args(Bucket)
"""Every bucket; the stream of a bucket is named `KV_<bucket>`."""
