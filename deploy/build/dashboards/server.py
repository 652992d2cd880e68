"""The servers of the bus: have they memory, storage and patience left, and is the disk fast?"""

from typing import Final

from dashboards import server_figures as server
from dashboards.graphs import lines
from dashboards.page import Section
from dashboards.panels import GREEN, RED, YELLOW, Query
from dashboards.queries import RATE, quantile
from dashboards.values import stat
from nodepool.contract import metrics

_NAME: Final = "{{server_id}}"
_NOT_WATCHED: Final = "not scraped"


def _of_server(figure: str) -> str:
    """Return a figure of each server."""
    return f"max by (server_id) ({figure})"


def _grown(figure: str) -> str:
    """Return by how much a figure of each server grew in a step."""
    return f"sum by (server_id) (increase({figure}[{RATE}]))"


SERVERS: Final = Section(
    "Are the servers of the bus well?",
    [
        lines(
            "Memory of the servers",
            "Memory that each server has, and the limit near which it collects garbage sooner.",
            [
                Query(_of_server(server.MEMORY), _NAME),
                Query(f"{_of_server(server.MEMORY_LIMIT)} > 0", _NAME + " limit"),
            ],
            unit="bytes",
            width=8,
            empty=_NOT_WATCHED,
        ),
        lines(
            "Storage of the servers",
            "What each server stores in files, as a share of what it may store.",
            [
                Query(
                    f"{_of_server(server.STORED)} / ({_of_server(server.STORAGE_LIMIT)} > 0)", _NAME
                )
            ],
            unit="percentunit",
            steps=((None, GREEN), (0.7, YELLOW), (0.9, RED)),
            width=8,
            empty=_NOT_WATCHED,
        ),
        lines(
            "Commits, 99 of 100",
            "How long the slowest of a hundred commits takes to be stored: most of it is the sync "
            "to the disk, and the way to the other servers.",
            [Query(quantile(0.99, metrics.COMMIT_SECONDS), "99 of 100")],
            unit="s",
            steps=((None, GREEN), (0.1, YELLOW), (0.5, RED)),
            width=8,
        ),
        stat(
            "Slow consumers",
            "Clients that a server has cut off in the time shown, since they did not read.",
            f"sum(increase({server.SLOW_CONSUMERS}[$__range]))",
            steps=((None, GREEN), (1, YELLOW)),
            width=4,
            height=8,
            empty=_NOT_WATCHED,
        ),
        lines(
            "JetStream requests and errors",
            "Requests to the API of JetStream that a server received in each step, and those that "
            "it answered with an error.",
            [
                Query(_grown(server.API_REQUESTS), _NAME + " requests"),
                Query(_grown(server.API_ERRORS), _NAME + " errors"),
            ],
            width=8,
            empty=_NOT_WATCHED,
        ),
        lines(
            "Processor time of the servers",
            "Of one core.",
            [Query(_of_server(server.CPU), _NAME)],
            unit="percent",
            width=6,
            empty=_NOT_WATCHED,
        ),
        lines(
            "Connections of the servers",
            "Clients that are connected to each server.",
            [Query(_of_server(server.CONNECTIONS), _NAME)],
            width=6,
            decimals=0,
            empty=_NOT_WATCHED,
        ),
    ],
)
