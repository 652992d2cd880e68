"""The figures of a nats-server that are watched, as prometheus-nats-exporter names them."""

from typing import Final

MEMORY: Final = "gnatsd_varz_mem"
MEMORY_LIMIT: Final = "gnatsd_varz_gomemlimit"
CPU: Final = "gnatsd_varz_cpu"
CONNECTIONS: Final = "gnatsd_varz_connections"
SLOW_CONSUMERS: Final = "gnatsd_varz_slow_consumers"
API_REQUESTS: Final = "gnatsd_varz_jetstream_stats_api_total"
API_ERRORS: Final = "gnatsd_varz_jetstream_stats_api_errors"
STORED: Final = "gnatsd_varz_jetstream_stats_storage"
STORAGE_LIMIT: Final = "gnatsd_varz_jetstream_config_max_storage"
ALL: Final = (
    MEMORY,
    MEMORY_LIMIT,
    CPU,
    CONNECTIONS,
    SLOW_CONSUMERS,
    API_REQUESTS,
    API_ERRORS,
    STORED,
    STORAGE_LIMIT,
)
"""Every figure that a rule or a panel may read."""
