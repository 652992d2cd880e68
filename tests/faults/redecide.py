"""Every commit of a log decided on once more, by a replica that knows nothing but the log.

What a service says follows from its state and its inputs alone. So if a replica whose state comes
from the log proposes for every commit what lies in the log, the replicas that made those commits
were in that very state: what was live equals the replay, at each commit and not at the end only.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator

from nodepool.contract.log import Entry, LogId
from nodepool.engine.replica import Replica
from nodepool.service import AnyService, commit_subject

Said = tuple[str, object]
"""The subject and the data of an output."""


def differences(service: AnyService, entries: Iterable[Entry], log: LogId) -> Iterator[str]:
    """The commits of a service that it would not make today, one line each.

    log: the identity of the log.
    """
    replica = Replica(service, log=log)
    recorded: list[Said] = []
    positions: deque[int] = deque()
    for entry in entries:
        if entry.subject == commit_subject(service.name):
            yield from _decided(replica, positions, recorded, entry)
            recorded.clear()
        elif _is_own(service, entry.subject):
            recorded.append(_said(entry.subject, entry.content))
        elif service.is_input(entry.subject):
            replica.read(entry)
            positions.append(entry.position)


def _is_own(service: AnyService, subject: str) -> bool:
    return subject.startswith(f"np.evt.{service.name}.") or subject == f"np.dead.{service.name}"


def _decided(
    replica: Replica[object, object, object],  # type: ignore[type-var]
    positions: deque[int],
    recorded: list[Said],
    record: Entry,
) -> Iterator[str]:
    """The difference of one commit, if any.

    positions: where the inputs lie that were read before it.
    """
    content = json.loads(record.content)
    position: int = content["position"]
    is_skipped: bool = content.get("skipped", False)
    count = 0
    while positions and positions[0] <= position:
        positions.popleft()
        count += 1
    decided: list[Said] = []
    while count:
        # A `Wake` that was too old was passed over, which only the record says.
        proposal = replica.propose(
            even_if_quiet=True,
            most=count,
            is_old=lambda wake: is_skipped and wake.position == position,
        )
        assert proposal is not None, "open inputs can be processed"
        decided += (_said(message.subject, message.content) for message in proposal.messages)
        replica.confirm_proposal(proposal, record.position)
        count -= len(proposal.processed) + proposal.skips
    replica.read(record)
    if decided != recorded:
        pairs = zip(decided, recorded, strict=False)
        first = next((pair for pair in pairs if pair[0] != pair[1]), ("more", "fewer"))
        yield f"{record.subject} at {record.position}: decided and recorded: {first}"


def _said(subject: str, content: bytes) -> Said:
    values = json.loads(content)
    return subject, values.get("data", values)
