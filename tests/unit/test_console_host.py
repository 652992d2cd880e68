"""Sessions, links, addresses and open pages of the console, without a bus."""

import asyncio
import re
import subprocess
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the packages of nodepool[console]")

from console.host.account import Account
from console.host.identities import Identity, list_identities
from console.host.links import Links
from console.host.live import Shown, Streams
from console.host.pace import pause_after
from console.host.reading import local_path, parse_query
from console.host.rendering import relate, say
from console.host.sessions import SESSIONS_MAX, Sessions
from console.host.settings import read_console
from console.host.telemetry import Telemetry
from nodepool.client import ClientError
from nodepool.host.settings import Settings, SettingsError

ALICE = Identity("acme", "alice", "editor", "alice.nk")
BOB = Identity("acme", "bob", "viewer", "bob.nk")
Message = MutableMapping[str, Any]


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_session_ends_after_an_idle_time_and_not_while_it_is_used() -> None:
    clock = Clock()
    sessions = Sessions(60, clock)
    used, idle = sessions.begin(ALICE), sessions.begin(BOB)

    clock.now = 50
    assert sessions.find(used.id) is used
    clock.now = 100

    assert sessions.find(used.id) is used
    assert sessions.find(idle.id) is None
    assert sessions.find("unknown") is None


def test_a_session_ends_when_its_token_says_however_much_it_is_used() -> None:
    clock = Clock()
    sessions = Sessions(60, clock)
    session = sessions.begin(ALICE, "alice@example.com", 90)

    for clock.now in (50, 89):
        assert sessions.find(session.id) is session
    clock.now = 90
    assert sessions.find(session.id) is None
    assert session.name == "acme/alice (alice@example.com)"


def test_each_form_has_another_token_and_only_those_of_its_session_count() -> None:
    sessions = Sessions(60, Clock())
    session, other = sessions.begin(ALICE), sessions.begin(ALICE)
    tokens = {session.form_token for _ in range(3)}

    assert len(tokens) == 3
    assert all(session.has_made(token) for token in tokens)
    assert not any(other.has_made(token) for token in tokens)
    for wrong in ("", "00", "x" * 128, "0" * 128, session.form_token[:-2]):
        assert not session.has_made(wrong)


def test_what_was_done_is_said_on_the_next_page_alone() -> None:
    session = Sessions(60, Clock()).begin(ALICE)
    session.said = "train is being deleted."

    assert session.take_said() == "train is being deleted."
    assert session.take_said() == ""


def test_a_further_session_ends_the_one_that_was_idle_longest() -> None:
    clock = Clock()
    sessions = Sessions(60, clock)
    first = sessions.begin(ALICE)
    for _ in range(SESSIONS_MAX):
        clock.now += 0.001
        newest = sessions.begin(ALICE)

    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(first.id) is None
    assert sessions.find(newest.id) is newest


def test_the_sessions_and_links_of_a_user_who_is_gone_end(tmp_path: Path) -> None:
    sessions, links = Sessions(60, Clock()), Links(tmp_path)
    alice, bob = sessions.begin(ALICE), sessions.begin(BOB)
    links.refresh([ALICE, BOB])
    token = links.file_of(BOB).read_text().strip().partition("token=")[2]

    sessions.keep_only([ALICE])
    links.refresh([ALICE])

    assert (sessions.find(alice.id), sessions.find(bob.id)) == (alice, None)
    assert links.redeem(token) is None
    assert not links.file_of(BOB).exists()


def test_a_link_signs_in_once_and_is_replaced(tmp_path: Path) -> None:
    links = Links(tmp_path)
    links.refresh([ALICE])
    first = links.file_of(ALICE).read_text().strip().partition("token=")[2]

    assert links.redeem(first) == ALICE
    assert links.redeem(first) is None
    second = links.file_of(ALICE).read_text().strip().partition("token=")[2]
    assert links.redeem(second) == ALICE
    assert links.file_of(ALICE).stat().st_mode & 0o077 == 0

    links.clear()
    assert list(tmp_path.iterdir()) == []


def test_people_can_sign_in_and_agents_and_services_cannot(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    for name, comment in (
        ("alice", "# acme/alice, editor"),
        ("agent-prod", "# acme/agent-prod, agent of prod"),
        ("bob", "# no comment of ours"),
    ):
        (tmp_path / "acme" / f"{name}.nk").write_text(f"{comment}\nSEED\n")
    (tmp_path / "quota.nk").write_text("# quota, platform\nSEED\n")

    assert [each.name for each in list_identities(tmp_path)] == ["acme/alice"]
    assert list_identities(tmp_path / "missing") == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/nodepools?q=a", "/nodepools?q=a"),
        ("", ""),
        ("nodepools", ""),
        ("//evil.example", ""),
        ("/\\evil.example", ""),
        ("/a\\..\\b", ""),
        ("https://evil.example/", ""),
        ("javascript:alert(1)", ""),
        ("/a\r\nSet-Cookie: b=c", ""),
        ("/" + "a" * 5_000, ""),
    ],
)
def test_the_way_back_stays_on_this_site(given: str, expected: str) -> None:
    assert local_path(given) == expected


def test_a_form_with_too_many_fields_is_read_as_none() -> None:
    assert parse_query("a=1&a=2&b=") == {"a": ["1", "2"], "b": [""]}
    assert parse_query("&".join(f"a{n}=1" for n in range(65))) == {}


def test_a_sentence_has_times_and_bold_numbers_and_no_markup_of_others() -> None:
    html = str(say("It wants 1,024 of gd-8xh100 since 2026-11-23T16:46:52Z; <b>x</b> g12."))

    assert "<b>1,024</b> of gd-8xh100 since <time " in html
    assert ">16:46:52</time>; &lt;b&gt;x&lt;/b&gt; g12." in html


def test_a_finding_says_how_long_ago_a_moment_was_and_until_which_day_another_one_lasts() -> None:
    now = datetime(2026, 11, 23, 16, 50, tzinfo=UTC)

    ended = str(relate("<b>; it committed last at 2026-11-23T16:46:52Z", now))
    lasts = str(relate("it is valid until 2026-11-28T08:00:00Z only", now))

    assert re.sub(r" title=\"[^\"]+\"", "", ended) == (
        '&lt;b&gt;; it committed last <time datetime="2026-11-23T16:46:52Z" data-ago>'
        "3 min 8 s ago</time>"
    )
    assert re.sub(r"<[^>]+>", "", lasts) == "it is valid until 28 Nov 08:00:00 only"
    assert 'title="28 Nov 2026, 08:00:00 UTC"' in lasts


@pytest.mark.parametrize(
    ("name", "value"),
    [("KEYS", ""), ("LINKS", ""), ("PORT", "x"), ("PORT", "70000"), ("IDLE_MINUTES", "0")],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    right = {"NODEPOOL_CONSOLE_KEYS": "keys", "NODEPOOL_CONSOLE_LINKS": "links"}

    assert read_console(right).port == 9480
    with pytest.raises(SettingsError, match=f"NODEPOOL_CONSOLE_{name}"):
        read_console({**right, f"NODEPOOL_CONSOLE_{name}": value})


async def test_a_browser_that_takes_no_frame_is_let_go_of_and_delays_no_other(
    tmp_path: Path,
) -> None:
    settings = Settings(metrics_port=-1, log_file=str(tmp_path / "console.log"))
    telemetry = Telemetry(settings, lambda: ())
    streams = Streams(telemetry, taken_s=0.05)
    account = Account(ALICE, settings, telemetry.log)
    followed, made = asyncio.Event(), 0

    async def make() -> str:
        nonlocal made
        made += 1
        return f"page {account.mirror.read_everything()}"

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def take(message: Message) -> None:
        if b"page 1" in message.get("body", b""):
            followed.set()

    async def stall(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    # given two browsers that show the same page, one of which takes nothing
    shown = Shown("/nodepools", make, lambda: True)
    taking = asyncio.create_task(streams.response(account, shown)({}, receive, take))
    await streams.response(account, shown)({}, receive, stall)

    # then that one is let go of, and the other one follows
    assert streams.count == 1
    account.mirror.note_change()
    async with asyncio.timeout(30):
        await followed.wait()
    taking.cancel()
    telemetry.close()
    assert "takes no frames" in (tmp_path / "console.log").read_text()
    assert made <= 4


async def test_browsers_that_show_the_same_page_share_its_frames(tmp_path: Path) -> None:
    settings = Settings(metrics_port=-1, log_file=str(tmp_path / "console.log"))
    telemetry = Telemetry(settings, lambda: ())
    streams = Streams(telemetry)
    account = Account(ALICE, settings, telemetry.log)
    made = 0

    async def make() -> str:
        nonlocal made
        made += 1
        return f"page {account.mirror.read_everything()}"

    shown = Shown("/nodepools", make, lambda: True)
    with streams.open(account, shown.view) as view, streams.open(account, shown.view) as other:
        # given two browsers that show the same page
        first = await view.frame(shown)
        assert await other.frame(shown) is first

        # when it changes often while both wait, then both get one frame, with the last change
        waiting = [asyncio.create_task(view.frame(shown, first)) for _ in range(2)]
        for _ in range(50):
            account.mirror.note_change()
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            one, two = await asyncio.gather(*waiting)
        assert one is two
        assert f"page {account.mirror.revision}".encode() in one.whole()
        assert (made, streams.count) == (2, 2)

        # and when the browser that would make the next one is gone, then the other one makes it
        leaving, staying = (asyncio.create_task(view.frame(shown, one)) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        account.mirror.note_change()
        async with asyncio.timeout(30):
            newest = await staying
        assert f"page {account.mirror.revision}".encode() in newest.whole()

    # and when all have left, then nothing of the page is kept
    with streams.open(account, shown.view) as view:
        assert await view.frame(shown) is not newest
        assert made == 4
    telemetry.close()


async def test_browsers_that_open_the_same_page_at_the_same_moment_all_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.host.live.TICK_S", 3_600.0)
    settings = Settings(metrics_port=-1, log_file=str(tmp_path / "console.log"))
    telemetry = Telemetry(settings, lambda: ())
    streams = Streams(telemetry)
    account = Account(ALICE, settings, telemetry.log)

    async def make() -> str:
        return f"page {account.mirror.read_everything()}"

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    def open_page() -> tuple[asyncio.Task[None], asyncio.Event]:
        is_shown = asyncio.Event()

        async def take(message: Message) -> None:
            if f"page {account.mirror.revision}".encode() in message.get("body", b""):
                is_shown.set()

        return asyncio.create_task(streams.response(account, shown)({}, receive, take)), is_shown

    # given a page that a browser shows, and that has changed since
    shown = Shown("/nodepools", make, lambda: True)
    first, is_shown = open_page()
    await is_shown.wait()
    account.mirror.note_change()

    # when several more open it at the same moment, then all get it, though nothing changes any more
    more = [open_page() for _ in range(3)]
    async with asyncio.timeout(30):
        for _, is_shown in more:
            await is_shown.wait()
    for task in (first, *(task for task, _ in more)):
        task.cancel()
    telemetry.close()


async def test_an_open_page_of_a_session_that_has_ended_leads_to_the_login(tmp_path: Path) -> None:
    settings = Settings(metrics_port=-1, log_file=str(tmp_path / "console.log"))
    telemetry = Telemetry(settings, lambda: ())
    account = Account(ALICE, settings, telemetry.log)

    async def make() -> str:
        return "what others may see"

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def take(message: Message) -> None:
        if message.get("body") and not got.done():
            got.set_result(message["body"])

    shown = Shown("/nodepools", make, lambda: False)
    response = Streams(telemetry).response(account, shown)
    showing = asyncio.create_task(response({}, receive, take))
    async with asyncio.timeout(30):
        content = await got

    assert b"data-ended" in content
    assert b"what others may see" not in content
    showing.cancel()
    telemetry.close()


def test_the_more_changes_came_at_once_the_longer_the_next_are_waited_for() -> None:
    pauses = [pause_after(changes) for changes in (0, 1, 400, 1_000_000)]

    assert pauses == [0.05, 0.0505, 0.25, 1.0]


def test_a_console_without_a_provider_does_not_load_the_libraries_for_openid() -> None:
    script = (
        "import sys, console.main\n"
        "loaded = [name for name in ('authlib', 'joserfc', 'httpx2') if name in sys.modules]\n"
        "sys.exit(', '.join(loaded) or None)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert done.stderr == ""


async def test_a_page_that_asks_while_the_account_connects_is_told_so(tmp_path: Path) -> None:
    # given a server that takes connections and says nothing
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    alice = Identity("acme", "alice", "editor", "")
    settings = Settings(url=f"nats://127.0.0.1:{port}", log_file=str(tmp_path / "log"))
    telemetry = Telemetry(settings, lambda: ())
    account = Account(alice, settings, telemetry.log)
    working = asyncio.create_task(account.run())
    try:
        await asyncio.sleep(0)

        # when a page asks, then it gets an error that it can show
        with pytest.raises(ClientError, match="not connected"):
            await account.ask("Users", {})
    finally:
        working.cancel()
        server.close()
        await asyncio.gather(working, return_exceptions=True)
        telemetry.close()
