"""The questions of shared/QUESTIONS.md, over the archive of a control plane that has had trouble.

The answers are computed from the messages themselves, without the archive and without SQL.
"""

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from nodepool.archive.storage.sql import Answer, Database
from nodepool.client.whole_log import lay_out, opened
from nodepool.contract.log import Entry
from nodepool.contract.subjects import address_of
from support.archived import archive_entries
from support.constants import ZONE
from support.replay import run_scenario

PAGE = Path(__file__).parents[2] / "shared" / "QUESTIONS.md"
QUESTIONS = dict(
    re.findall(r"^### (.*)\n(?:\n.*)*?\n```sql\n((?:.*\n)*?)```", PAGE.read_text(), re.M)
)
Row = tuple[Any, ...]
Said = tuple[Entry, str, dict[str, Any]]
"""A message, the name of its type, and the data of its CloudEvent."""


def scenario() -> Sequence[Entry]:
    """A few days of a control plane: failures, preemptions, a shortage, a deletion, refusals."""
    world = run_scenario()
    world.apply("hungry", 60)
    world.scale("nobody", 3)
    world.pass_time(minutes=24 * 60)
    world.scale("serve", 5)
    world.given_quota(80, org="umbra")
    world.given_cluster("lab", org="umbra")
    world.pass_time(minutes=24 * 60)
    world.delete("hungry")
    world.pass_time(minutes=60)
    return list(world.world.log.entries)


@pytest.fixture(scope="module")
def entries() -> Sequence[Entry]:
    return scenario()


@pytest.fixture(scope="module")
def log(entries: Sequence[Entry], tmp_path_factory: pytest.TempPathFactory) -> Database:
    """The archive of these messages as a database."""
    archive, folder = tmp_path_factory.mktemp("archive"), tmp_path_factory.mktemp("files")

    async def lay_out_archive() -> Sequence[Path]:
        await archive_entries(archive, entries, most=100)
        async with opened(str(archive)) as history:
            return await lay_out(folder, history)

    return Database(folder, asyncio.run(lay_out_archive()))


def said(entries: Iterable[Entry], *names: str) -> list[Said]:
    """The messages of these types."""
    found = []
    for entry in entries:
        address = address_of(entry.subject)
        if address is not None and address.name in names:
            found.append((entry, address.name, json.loads(entry.content)["data"]))
    return found


def path_of(entry: Entry) -> tuple[str, str, str]:
    address = address_of(entry.subject)
    assert address is not None
    return address.path


def nodes_per_day(entries: Sequence[Entry]) -> list[Row]:
    held, last = Counter[str](), {}
    for entry, name, data in said(
        entries, "CWNodeAssigned", "CWNodeDeleted", "CWNodeRegistrationFailed"
    ):
        held[data["org"]] += 1 if name == "CWNodeAssigned" else -1
        last[entry.time.date(), data["org"]] = held[data["org"]]
    return [(day, org, count) for (day, org), count in sorted(last.items())]


def failures(entries: Sequence[Entry]) -> list[Row]:
    found = defaultdict[tuple[str, str], list[tuple[datetime, str]]](list)
    for entry, name, data in said(entries, "MachineFailed", "NodeVerified"):
        if name == "MachineFailed" or not data["passed"]:
            found[data["zone"], data["machine"]].append((entry.time, data["cause"]))
    rows: list[Row] = [
        (*key, len(each), max(each)[0], Counter(cause for _, cause in each).most_common(1)[0][0])
        for key, each in found.items()
    ]
    return sorted(rows, key=lambda row: (-row[2], row[:2]))


def waits(entries: Sequence[Entry]) -> list[Row]:
    found = defaultdict[tuple[str, ...], list[float]](list)
    for entry, _, data in said(entries, "CWNodeAssigned"):
        wait = entry.time - datetime.fromisoformat(data["since"])
        found[path_of(entry)].append(wait.total_seconds())
    rows: list[Row] = [(*path, len(each), max(each), median(each)) for path, each in found.items()]
    return sorted(rows, key=lambda row: (-row[4], row[:3]))


def caused(entries: Sequence[Entry]) -> list[Row]:
    rows = list[Row]()
    for entry in entries:
        address = address_of(entry.subject)
        if address is not None:
            content = json.loads(entry.content)
            if "c8" in (content["id"], content.get("correlationid")):
                message = content["data"].get("message")
                who = address.service or "command"
                rows.append(
                    (entry.position, entry.time, who, address.name, address.path[2], message)
                )
    return rows


def sent(entries: Sequence[Entry]) -> list[Row]:
    found = defaultdict[tuple[str, str], list[datetime]](list)
    for entry in entries:
        address = address_of(entry.subject)
        if address is not None and address.kind == "cmd":
            found[address.path[0], address.name].append(entry.time)
    rows: list[Row] = [(*key, len(times), max(times)) for key, times in found.items()]
    return sorted(rows, key=lambda row: (-row[2], row[:2]))


def refusals(entries: Sequence[Entry]) -> list[Row]:
    return [
        (
            *(entry.time, path_of(entry)[0], path_of(entry)[2]),
            *(data["command"], data["reason"], data["message"]),
        )
        for entry, _, data in reversed(said(entries, "CommandRefused"))
    ]


def joins(entries: Sequence[Entry]) -> list[Row]:
    began, found = {}, defaultdict[str, list[float]](list)
    for entry, name, data in said(entries, "CWNodeAssigned", "CWNodeRegistered"):
        key = data["org"], data["cluster"], data["node"], data["assignment"]
        if name == "CWNodeAssigned":
            began[key] = entry.time, data["instanceType"]
        else:
            time, instance_type = began[key]
            found[instance_type].append((entry.time - time).total_seconds())
    rows: list[Row] = [(kind, len(each), median(each), max(each)) for kind, each in found.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def preempted(entries: Sequence[Entry]) -> list[Row]:
    nodes, pods = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for entry, _, data in said(entries, "CWNodeDeleted"):
        if data["removal"] == "Preempted":
            nodes[path_of(entry)] += 1
            pods[path_of(entry)] += data["lost"]
    rows: list[Row] = [(*path, count, pods[path]) for path, count in nodes.items()]
    return sorted(rows, key=lambda row: (-row[3], row[:3]))


def stopped(entries: Sequence[Entry]) -> list[Row]:
    found = defaultdict[tuple[str, ...], list[tuple[datetime, str]]](list)
    for entry, name, _ in said(entries, "CWOverQuota", "CWInsufficientCapacity"):
        found[path_of(entry)].append((entry.time, name))
    return [
        (
            *path,
            sum(name == "CWOverQuota" for _, name in each),
            sum(name == "CWInsufficientCapacity" for _, name in each),
            max(each)[0],
        )
        for path, each in sorted(found.items())
    ]


def sizes(entries: Sequence[Entry]) -> list[Row]:
    counts, lengths = Counter[str](), Counter[str]()
    for entry in entries:
        address = address_of(entry.subject)
        name = address.name if address is not None else "commit records, dead letters"
        counts[name] += 1
        lengths[name] += len(entry.content)
    return [
        (name, counts[name], length)
        for name, length in sorted(lengths.items(), key=lambda item: (-item[1], item[0]))
    ]


ANSWERS: dict[str, Callable[[Sequence[Entry]], list[Row]]] = {
    "Who held how many Nodes at the end of each day?": nodes_per_day,
    "Which machines failed most?": failures,
    "How long did NodePools wait for their Nodes?": waits,
    "What did this command cause?": caused,
    "Which commands does each organisation send?": sent,
    "Which commands were refused, and why?": refusals,
    "How long does each instance type take to join its cluster?": joins,
    "Which NodePools lost Nodes to preemptions, and how much work with them?": preempted,
    "Which NodePools were stopped by quota or capacity, and how often?": stopped,
    "What fills the log?": sizes,
}


def test_the_page_has_ten_questions_and_each_has_an_answer_of_its_own() -> None:
    assert len(QUESTIONS) == 10
    assert QUESTIONS.keys() == ANSWERS.keys()


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_log_answers_what_its_messages_say(
    question: str, log: Database, entries: Sequence[Entry]
) -> None:
    expected = ANSWERS[question](entries)

    answer = log.ask(QUESTIONS[question], most=1_000)

    assert expected, "the scenario has something to ask for"
    assert [tuple(row) for row in answer.rows] == [
        tuple(pytest.approx(value) if isinstance(value, float) else value for value in row)
        for row in expected
    ]


def test_the_columns_are_those_of_the_page(log: Database) -> None:
    answer: Answer = log.ask("DESCRIBE log", most=100)

    documented = re.findall(r"^\| (`.*?`) \|", PAGE.read_text().partition("## The table")[2], re.M)
    assert [row[0] for row in answer.rows] == re.findall(r"`(\w+)`", ", ".join(documented))
    assert ZONE in str(log.ask("SELECT DISTINCT cluster FROM log", most=100).rows)
