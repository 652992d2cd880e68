"""The audit log of the API server: which user sent which requests."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from testbed.components import AUDIT_LOG


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the API server has completed.

    at: when the API server received it.
    user: who sent it; of a ServiceAccount `system:serviceaccount:NAMESPACE:NAME`.
    verb, resource: what for; a subresource stands after a slash, as in `pods/eviction`.
    name: of the object; empty for a list or a watch.
    code: the HTTP status of the response.
    uri: the path and the query.
    """

    at: datetime
    user: str
    verb: str
    resource: str
    name: str
    code: int
    uri: str


class AuditLog:
    """The requests from now on, read from the log of the API server in this folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / AUDIT_LOG
        self._begin = self._path.stat().st_size if self._path.exists() else 0

    def requests(self, user: str = "") -> Iterator[Request]:
        """Those that one user has sent, or all; a watch is there once it has begun."""
        with self._path.open("rb") as log:
            log.seek(self._begin)
            for line in log:
                if not line.endswith(b"\n"):
                    return  # It is being written.
                event = json.loads(line)
                # A watch is there twice: when it begins, and when it ends.
                long = event["verb"] == "watch"
                if event["stage"] != ("ResponseStarted" if long else "ResponseComplete"):
                    continue
                if user in ("", event["user"]["username"]):
                    yield _request(event)

    def counts(self, user: str = "") -> Counter[tuple[str, str]]:
        """How many there are, by verb and resource."""
        return Counter((each.verb, each.resource) for each in self.requests(user))


def _request(event: dict[str, object]) -> Request:
    about, status, user = event.get("objectRef"), event.get("responseStatus"), event["user"]
    ref = about if isinstance(about, dict) else {}
    resource = str(ref.get("resource", ""))
    if "subresource" in ref:
        resource += f"/{ref['subresource']}"
    return Request(
        at=datetime.fromisoformat(str(event["requestReceivedTimestamp"])),
        user=str(user["username"]) if isinstance(user, dict) else "",
        verb=str(event["verb"]),
        resource=resource,
        name=str(ref.get("name", "")),
        code=int(status.get("code", 0)) if isinstance(status, dict) else 0,
        uri=str(event["requestURI"]),
    )
