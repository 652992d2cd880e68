"""Which services have not processed yet what lies in a log."""

import json
from collections.abc import Iterable, Sequence

from nodepool.contract.log import Entry
from nodepool.service import AnyService, commit_subject


def behind(services: Iterable[AnyService], entries: Sequence[Entry]) -> list[str]:
    """The names of the services with an input beyond the position that they have committed."""
    return [service.name for service in services if _is_behind(service, entries)]


def _is_behind(service: AnyService, entries: Sequence[Entry]) -> bool:
    inputs = (each.position for each in reversed(entries) if service.is_input(each.subject))
    return next(inputs, 0) > _committed(service, entries)


def _committed(service: AnyService, entries: Sequence[Entry]) -> int:
    """The committed position of a service, 0 before its first commit."""
    subject = commit_subject(service.name)
    records = (each.content for each in reversed(entries) if each.subject == subject)
    last = next(records, None)
    return 0 if last is None else int(json.loads(last)["position"])
