"""Doing something for many objects at a time, and the line that says that a command waits."""

import asyncio
import io
from contextlib import aclosing

import pytest

from nodepool.cli import waiting_line
from nodepool.cli.in_order import AT_A_TIME, in_order
from nodepool.cli.node_verbs import together
from nodepool.cli.output import print_note, print_text


async def test_results_come_in_order_and_a_bounded_number_is_under_way() -> None:
    under_way = most = 0

    async def work(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(7 - number % 7):
            await asyncio.sleep(0)
        under_way -= 1
        if number == 5:
            raise ValueError(number)
        return number

    async with aclosing(in_order(range(200), work)) as results:
        seen = [
            (number, future.result() if future.exception() is None else "failed")
            async for number, future in results
        ]

    assert seen == [(each, "failed" if each == 5 else each) for each in range(200)]
    assert most == AT_A_TIME


async def test_what_is_under_way_ends_with_its_reader() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            if number:
                await asyncio.Event().wait()
        finally:
            ended.append(number)

    async with aclosing(in_order(range(100), work)) as results:
        await anext(results)
    assert sorted(ended) == list(range(AT_A_TIME))


class Terminal(io.StringIO):
    """A terminal that keeps what is written on it.

    written: set by the first text that is written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)

    def isatty(self) -> bool:
        return True


async def test_a_command_that_is_silent_says_so_and_the_line_goes_before_any_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr(waiting_line, "PATIENCE_S", 0.0)

    async with asyncio.timeout(30), waiting_line.shown_while(lambda _: "waiting"):
        await terminal.written.wait()
        print_text("output")
        print_note("note")

    assert terminal.getvalue() == "\r\x1b[Kwaiting\r\x1b[Koutput\nnote\n"


async def test_nothing_is_written_where_no_terminal_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting_line, "PATIENCE_S", 0.0)

    async with waiting_line.shown_while(lambda _: "waiting"):
        await asyncio.sleep(0.01)

    assert capsys.readouterr() == ("", "")


async def test_nodes_that_are_changed_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nodepool.cli.node_verbs.TOGETHER_MAX", 3)
    under_way: set[str] = set()
    seen: list[int] = []

    async def change(name: str) -> str:
        under_way.add(name)
        seen.append(len(under_way))
        await asyncio.sleep(0)
        under_way.remove(name)
        return "locked"

    names = [f"g{number}" for number in range(10)]
    assert await together(names, change) == 0
    assert max(seen) == 3
    assert capsys.readouterr().out.split() == [
        word for name in names for word in (f"node/{name}", "locked")
    ]
