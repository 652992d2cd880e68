"""The gateway: what do organisations send, is it acknowledged soon, and who exceeds a budget?"""

from typing import Final

from dashboards.graphs import lines
from dashboards.page import Section
from dashboards.panels import GREEN, RED, YELLOW, Query
from dashboards.queries import quantile, rate, series
from nodepool.contract import gateway_metrics as gateway

_NO_GATEWAY: Final = "no gateway"
_USED_SHARE: Final = (
    f"max by (org) ({series(gateway.BYTES)} "
    f"/ on (instance) group_left () {series(gateway.BYTES_MAX)})"
)

GATEWAY: Final = Section(
    "Does the gateway serve every organisation?",
    [
        lines(
            "Commands and observations by organisation",
            "A second, by result: stored, or why they were refused. TooManyRequests is an "
            "organisation that exceeds a budget, Unavailable means that the gateway cannot store.",
            [Query(rate(gateway.TAKEN, by="org, result") + " > 0", "{{org}} {{result}}")],
            unit="cps",
            width=12,
            empty="nobody sends",
        ),
        lines(
            "Storage budget used",
            "What each organisation has stored within the last hour, as a share of what a replica "
            "lets it store; at 100 % its commands are refused.",
            [Query(_USED_SHARE, "{{org}}")],
            unit="percentunit",
            steps=((None, GREEN), (0.9, YELLOW), (1, RED)),
            width=12,
            empty="nobody has stored",
        ),
        lines(
            "Time to acknowledge, 99 of 100",
            "From the arrival of a message or query to the reply, by endpoint; Watch is left out.",
            [Query(quantile(0.99, gateway.SECONDS, by="endpoint"), "{{endpoint}}")],
            unit="s",
            log=True,
            width=8,
            empty="nobody sends",
        ),
        lines(
            "Messages and queries that wait",
            "Those that wait or are in work, of all replicas, by endpoint. Most queries in work "
            "wait for changes.",
            [Query(f"sum by (endpoint) ({series(gateway.WAITING)})", "{{endpoint}}")],
            width=8,
            decimals=0,
            empty=_NO_GATEWAY,
        ),
        lines(
            "Queries by result",
            "A second.",
            [Query(rate(gateway.QUERIES, by="query, result") + " > 0", "{{query}} {{result}}")],
            unit="cps",
            width=8,
            empty="nobody asks",
        ),
    ],
)
