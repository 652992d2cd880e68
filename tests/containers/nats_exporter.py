"""Stands in for prometheus-nats-exporter where its image cannot be pulled.

It reads `/varz` of a nats-server at each scrape and shows its numbers under the names that the
exporter gives them: `gnatsd_varz_mem` for `mem`, and `gnatsd_varz_jetstream_stats_api_errors` for
`errors` in `api` in `stats` in `jetstream`. The names were compared with those that users of the
exporter publish, since the exporter itself cannot be built here.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import URLError
from urllib.request import urlopen

PREFIX = "gnatsd_varz"
ANSWER_S = 5


def figures(varz: Mapping[str, object]) -> Mapping[str, float]:
    """Return the numbers of `/varz` by the names of their metrics."""
    chosen = {k: v for k, v in varz.items() if k == "jetstream" or not isinstance(v, Mapping)}
    return dict(_numbers(PREFIX, chosen))


def _numbers(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        name = f"{prefix}_{key}"
        if isinstance(value, Mapping):
            yield from _numbers(name, value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value


def page(servers: Mapping[str, str]) -> str:
    """Return the metrics of all servers that respond; a server that does not has no series."""
    lines = []
    for name, address in servers.items():
        try:
            with urlopen(f"{address}/varz", timeout=ANSWER_S) as response:
                varz = json.load(response)
        except URLError:
            continue
        for metric, value in figures(varz).items():
            lines.append(f'{metric}{{server_id="{name}"}} {value}\n')
    return "".join(lines)


def serve(servers: Mapping[str, str], host: str, port: int) -> ThreadingHTTPServer:
    """Return a server of `/metrics`. servers: their names and addresses of their monitoring."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # The name that the library calls.
            body = page(servers).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer((host, port), Handler)


def parsed(arguments: Sequence[str]) -> tuple[int, Mapping[str, str]]:
    """Return the port and the servers of a command line of the exporter."""
    options = [each for each in arguments if each.startswith("-")]
    places = [each for each in arguments if not each.startswith("-")]
    (port,) = [int(each.removeprefix("-port=")) for each in options if "=" in each]
    if sorted(options) != sorted(["-varz", f"-port={port}"]):
        sys.exit("stand-in for the exporter: it knows no other options than -varz and -port")
    return port, {name: address for name, _, address in (each.partition(",") for each in places)}


if __name__ == "__main__":
    listens, monitored = parsed(sys.argv[1:])
    serve(monitored, "0.0.0.0", listens).serve_forever()
