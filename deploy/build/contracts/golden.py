"""Adds a line to the golden file for each new sample of a message: `make golden`.

A recorded line is never changed: each has a seal, which depends on all lines before it.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from contracts.samples import NOON, SAMPLES
from nodepool.contract.messages import Message, Outcome, envelope_of
from nodepool.contract.subjects import subject_of

GOLDEN = Path(__file__).parents[3] / "tests" / "unit" / "golden.jsonl"


def read_recorded() -> list[dict[str, object]]:
    """Return the lines of the golden file."""
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def missing_lines() -> Iterator[str]:
    """Yield the lines of the samples that are not recorded yet."""
    recorded = read_recorded()
    before = recorded[-1]["seal"]
    for sample in SAMPLES[len(recorded) :]:
        text = line(sample, before)
        before = json.loads(text)["seal"]
        yield text


def seal(before: object, subject: object, content: object) -> str:
    """Return what ties a line to all the lines before it."""
    text = json.dumps([before, subject, content], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def line(message: Message, before: object) -> str:
    """Return the line that records a message, after the line with the seal `before`."""
    outcome = isinstance(message, Outcome)
    service = "validator" if outcome else getattr(message, "speaker", "")
    subject = subject_of(message, service)
    envelope = envelope_of(type(message)).model_construct(
        id="41.validator.0",
        type=type(message).__name__,
        source=service or "nodepool",
        subject="/".join(message.path),
        time=NOON,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        correlationid="c1",
        causationid="40",
        causeposition=41,
        data=message,
    )
    content = json.loads(envelope.encode())
    sealed = {"subject": subject, "content": content, "seal": seal(before, subject, content)}
    return json.dumps(sealed, ensure_ascii=False)


if __name__ == "__main__":
    added = "".join(f"{text}\n" for text in missing_lines())
    with GOLDEN.open("a", encoding="utf-8") as file:
        file.write(added)
