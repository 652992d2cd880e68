"""Stands in for Grafana where its image cannot be pulled, and checks what can be checked of it.

It reads the provisioning files and the dashboards from where Grafana would, serves `/api/health`
and `/api/search`, passes `/api/datasources/proxy/uid/UID/...` on to that source, and draws nothing.
It ends with 1 where a file does not parse, or no dashboard is where a provider says.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

PROVISIONING = Path("/etc/grafana/provisioning")
PORT = 3000
ANSWER_S = 10


def provisioned(kind: str) -> Iterator[dict[str, Any]]:
    """The content of each provisioning file of a kind: `datasources` or `dashboards`."""
    files = sorted(PROVISIONING.joinpath(kind).glob("*.y*ml"))
    if not files:
        sys.exit(f"stand-in for grafana: there is no file in {PROVISIONING / kind}")
    for file in files:
        yield yaml.safe_load(file.read_text(encoding="utf-8"))


def dashboards() -> Iterator[dict[str, str]]:
    """Every dashboard that a provider names: its uid and title, as `/api/search` has them."""
    for content in provisioned("dashboards"):
        for provider in content["providers"]:
            for file in sorted(Path(provider["options"]["path"]).rglob("*.json")):
                dashboard = json.loads(file.read_text(encoding="utf-8"))
                yield {"uid": dashboard["uid"], "title": dashboard["title"], "type": "dash-db"}


def datasources() -> Mapping[str, str]:
    """The address of every source of data, by its uid, with the variables of the environment."""
    return {
        source["uid"]: os.path.expandvars(source["url"])
        for content in provisioned("datasources")
        for source in content["datasources"]
    }


PAGES: dict[str, Any] = {
    "/api/health": {"database": "ok", "version": "stand-in"},
    "/api/search": list(dashboards()),
}
PROXY = "/api/datasources/proxy/uid/"
SOURCES = datasources()


def asked(path: str) -> bytes:
    """What a source of data answers to the path behind its uid."""
    uid, _, rest = path.removeprefix(PROXY).partition("/")
    with urlopen(f"{SOURCES[uid]}/{rest}", timeout=ANSWER_S) as response:
        answer: bytes = response.read()
    return answer


class Handler(BaseHTTPRequestHandler):
    """Serves the pages."""

    def do_GET(self) -> None:
        page = PAGES.get(self.path.partition("?")[0])
        if self.path.startswith(PROXY):
            try:
                status, body = 200, asked(self.path)
            except (KeyError, OSError) as error:
                status, body = 502, json.dumps({"message": str(error)}).encode()
        else:
            status = 200 if page is not None else 404
            body = json.dumps(page if page is not None else {"message": "not found"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs no request."""


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    count = len(PAGES["/api/search"])
    sys.stdout.write(f"this is no Grafana, but a stand-in for it; {count} dashboards parse\n")
    sys.stdout.flush()
    if not count:
        sys.exit("stand-in for grafana: the providers name no dashboard")
    ThreadingHTTPServer(("", PORT), Handler).serve_forever()
