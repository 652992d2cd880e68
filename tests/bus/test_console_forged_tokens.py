"""What the console does with forged tokens, and with an OpenID provider that answers nonsense."""

import gzip
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import RSAKey

from bus.consoles import Answer, Browser, running
from console.host import at_provider, provider
from console.host.openid import OpenID
from console.host.settings import ConsoleSettings
from console.main import Console
from nodepool.host.settings import Settings
from support.forging import CLIENT, Forger, forging

NONSENSE, ZIPPED = b"<html>", {"Content-Encoding": "gzip"}
DISCOVERY = "/.well-known/openid-configuration"
ROLES = ("owner", "editor", "viewer")
Forge = Callable[[Mapping[str, Any]], str]
USERS = {"team": "acme/editor", "mail@example.com": "acme/viewer", "gone": "acme/nobody"}


@asynccontextmanager
async def console_of(folder: Path, forger: Forger, **other: object) -> AsyncIterator[Console]:
    """A console that this provider signs users in to; it has no bus."""
    (folder / "keys" / "acme").mkdir(parents=True)
    for role in ROLES:
        (folder / "keys" / "acme" / f"{role}.nk").write_text(f"# acme/{role}, {role}\nSEED\n")
    secret = folder / "secret"
    secret.write_text("secret\n")
    url = str(other.pop("url", ""))
    given = {"issuer": forger.issuer, "clientID": CLIENT, "clientSecretFile": secret}
    openid = OpenID.model_validate({**given, "users": USERS, **other})
    bus = Settings(url="nats://127.0.0.1:9", metrics_port=-1, log_file=str(folder / "log"))
    keys, links = folder / "keys", folder / "links"
    async with running(
        ConsoleSettings(bus, keys, links, port=0, url=url, openid=openid)
    ) as console:
        yield console


async def ask(browser: Browser, back: str = "") -> dict[str, str]:
    """What a browser is sent to the provider with."""
    started = await browser.get(f"/login/start?next={back}")
    assert started.status == 303, started.text
    query = parse_qs(urlsplit(started.headers["location"]).query)
    return {name: values[0] for name, values in query.items()}


async def test_no_forged_token_begins_a_session(tmp_path: Path) -> None:
    with forging() as forger:
        async with console_of(tmp_path, forger) as console:
            now, other = int(time.time()), RSAKey.generate_key(2048)
            sign = forger.sign
            forgeries: list[tuple[str, Forge]] = [
                ("its claim nonce is not", lambda c: sign({**c, "nonce": "of another request"})),
                ("its claim nonce is missing", lambda c: sign(_without(c, "nonce"))),
                ("its claim iss", lambda c: sign({**c, "iss": "https://evil.example"})),
                ("its claim aud is not", lambda c: sign({**c, "aud": "another client"})),
                ("its claim aud is missing", lambda c: sign(_without(c, "aud"))),
                ("its claim azp", lambda c: sign({**c, "azp": "another client"})),
                ("its claim azp", lambda c: sign({**c, "aud": [CLIENT, "another"]})),
                ("(ExpiredTokenError)", lambda c: sign({**c, "exp": now - 40})),
                ("its claim exp is not", lambda c: sign({**c, "exp": "tomorrow"})),
                ("its claim exp is missing", lambda c: sign(_without(c, "exp"))),
                ("its claim nbf", lambda c: sign({**c, "nbf": now + 60})),
                ("its claim iat", lambda c: sign({**c, "iat": now + 60})),
                ("its claim sub is missing", lambda c: sign(_without(c, "sub"))),
                ("its claim sub", lambda c: sign({**c, "sub": 5})),
                ("its claim at_hash", lambda c: sign({**c, "at_hash": "AAAA"})),
                ("(BadSignatureError)", lambda c: sign(c, other)),
                ("has signed it", lambda c: sign(c, other, kid="two")),
                ("(UnsupportedAlgorithmError)", forger.unsigned),
                ("(UnsupportedAlgorithmError)", forger.sealed),
                ("cannot be verified", lambda _: "a.b.c"),
            ]
            for fault, forge in forgeries:
                # when somebody comes back from the provider with a token that is forged
                browser = Browser(console.url)
                asked = await ask(browser)
                forger.token = forge(forger.claims(asked["nonce"]))
                answer = await browser.get(f"/login/callback?code=1&state={asked['state']}")

                # then a page says what is wrong with it, and nobody is signed in
                assert answer.status == 403, (fault, answer.text)
                assert fault in answer.text, (fault, answer.text)
                assert browser.cookies == {}
                assert len(console.accounts.sessions) == 0

            # when the token is what it must be, then its person is signed in
            browser = Browser(console.url)
            asked = await ask(browser)
            forger.token = forger.sign(forger.claims(asked["nonce"], exp=now - 5))
            answer = await browser.get(f"/login/callback?code=1&state={asked['state']}")
            assert (answer.status, answer.headers["location"]) == (303, "/nodepools")
            assert len(console.accounts.sessions) == 1


def _without(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {each: value for each, value in claims.items() if each != name}


async def answer_of(console: Console, forger: Forger, **claims: object) -> Answer:
    """What a new browser sees that comes back from the provider with a good token."""
    browser = Browser(console.url)
    asked = await ask(browser)
    forger.token = forger.sign(forger.claims(asked["nonce"], **claims))
    return await browser.get(f"/login/callback?code=1&state={asked['state']}")


async def test_only_the_browser_that_asked_comes_back_and_only_once_in_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forging() as forger:
        async with console_of(tmp_path, forger) as console:
            browser, other = Browser(console.url), Browser(console.url)
            asked = await ask(browser, "//evil.example")
            cookie, back = dict(browser.cookies), f"/login/callback?code=1&state={asked['state']}"
            forger.token = forger.sign(forger.claims(asked["nonce"]))

            # when another browser comes with the code, or this one with another state or cookie
            assert (await other.get(back)).status == 403
            await ask(other)
            assert (await other.get(back)).status == 403
            for changed in ({}, {name: f"{value}0" for name, value in cookie.items()}):
                browser.cookies = changed
                assert (await browser.get(back)).status == 403
            for query in ("code=1&state=x", "code=1", f"error=access_denied&{back[22:]}"):
                browser.cookies = dict(cookie)
                assert (await browser.get(f"/login/callback?{query}")).status == 403, query
            browser.cookies = dict(cookie)
            assert (await browser.get(f"{back}&iss=https://evil.example")).status == 403

            # or too late, then nobody is signed in, and the provider is not asked for a token
            monkeypatch.setattr(at_provider, "ASKED_S", 0)
            browser.cookies = dict(cookie)
            assert (await browser.get(back)).status == 403
            assert forger.asked["/token"] == 0
            assert len(console.accounts.sessions) == 0

            # when it comes back as asked, then it is signed in, and led to no other site
            monkeypatch.undo()
            browser.cookies = dict(cookie)
            entered = await browser.get(back)
            assert entered.headers["location"] == "/nodepools"
            assert [name for name in browser.cookies if name.endswith("-asked")] == []


async def test_a_provider_that_is_gone_or_answers_nonsense_gets_a_page_and_links_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each request is a new look, and waits only a moment.
    monkeypatch.setattr(provider, "KNOWN_S", -1.0)
    monkeypatch.setattr(provider, "AGAIN_S", 0.0)
    monkeypatch.setattr(provider, "ANSWER_S", 0.5)
    with forging() as forger:
        async with console_of(tmp_path, forger) as console:
            right = json.loads(forger.answer(DISCOVERY)[2])
            no_keys = b'{"keys": [{"kty": "oct", "k": "AAAA"}, 5, {"kty": "RSA"}]}'
            cases: list[tuple[str, int, dict[str, str], bytes, int, str]] = [
                (DISCOVERY, 200, {}, NONSENSE, 502, "no JSON"),
                (DISCOVERY, 200, {}, b"[" * 100_000, 502, "no JSON"),
                (DISCOVERY, 200, {}, b"[]", 502, "no object"),
                (
                    DISCOVERY,
                    200,
                    {},
                    _json(right) + b" " * provider.ANSWER_MAX,
                    502,
                    "has over 262144",
                ),
                (DISCOVERY, 200, ZIPPED, gzip.compress(_json(right)), 502, "is compressed"),
                (DISCOVERY, 200, {"Content-Length": "9"}, b"{}", 503, "does not answer"),
                (DISCOVERY, 302, {"Location": "/keys"}, b"", 502, "status 302"),
                (DISCOVERY, 500, {}, b"", 502, "status 500"),
                (DISCOVERY, 200, {}, _json({**right, "issuer": "https://evil"}), 502, "not http"),
                (DISCOVERY, 200, {}, _json({**right, "jwks_uri": "http://evil"}), 502, "jwks_uri"),
                ("/token", 200, {}, NONSENSE, 502, "no JSON"),
                ("/token", 503, {}, b"", 502, "status 503"),
                ("/token", 200, {}, b"{}", 502, "no ID token"),
                ("/token", 401, {}, b'{"error": "invalid_client"}', 502, "invalid_client"),
                ("/token", 400, {}, b'{"error": "invalid_grant"}', 403, "not know the code"),
                ("/keys", 200, {}, NONSENSE, 502, "no JSON"),
                ("/keys", 200, {}, no_keys, 403, "has signed it"),
            ]
            for path, status, headers, body, expected, text in cases:
                # when the provider answers so, then a page says it with a status of its own
                browser = Browser(console.url)
                asked = await ask(browser)
                forger.token = forger.sign(forger.claims(asked["nonce"]))
                forger.answers = {path: (status, headers, body)}
                answer = await browser.get(f"/login/callback?code=1&state={asked['state']}")
                forger.answers = {}
                assert (answer.status, text in answer.text) == (expected, True), (body, answer.text)
                assert console.obstacle() is None

        # when it is gone, then so does the first page of the sign-in
    async with console_of(tmp_path / "other", forger) as console:
        gone = await Browser(console.url).get("/login/start")
        assert (gone.status, "does not answer" in gone.text) == (503, True)

        # and a one-time link still signs in
        link = (tmp_path / "other" / "links" / "acme.owner").read_text().strip()
        assert (await Browser(console.url).get(link)).status == 303


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


async def test_new_keys_of_the_provider_are_read_and_not_with_every_forged_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forging() as forger:
        async with console_of(tmp_path, forger) as console:
            # given a provider whose key the console has read
            assert (await answer_of(console, forger)).status == 303
            assert forger.asked["/keys"] == 1

            # when it signs with another, then the keys are not read with every token
            forger.change_key("two")
            for _ in range(5):
                assert (await answer_of(console, forger)).status == 403
            assert forger.asked["/keys"] == 1

            # when some time has passed, then they are, and the new key counts
            monkeypatch.setattr(provider, "AGAIN_S", 0.0)
            assert (await answer_of(console, forger)).status == 303


async def test_whom_no_claim_leads_to_a_user_reads_which_claim_is_missing(tmp_path: Path) -> None:
    with forging() as forger:
        async with console_of(tmp_path, forger) as console:
            for claims, text in (
                ({"groups": None}, "The claim groups is missing"),
                ({"groups": []}, "The claim groups is missing"),
                ({"groups": {"team": True}}, "The claim groups is missing"),
                ({"groups": ["<b>x"]}, "gives access here. It is: &lt;b&gt;x."),
                ({"groups": ["gone"]}, "acme/nobody, whose key is not here"),
            ):
                answer = await answer_of(console, forger, **claims)
                assert (answer.status, text in answer.text) == (403, True), (claims, answer.text)
            assert len(console.accounts.sessions) == 0

            # and the first entry of the settings that matches counts
            assert (await answer_of(console, forger, groups=["gone", "team"])).status == 303
            assert _names(console) == ["acme/editor (mallory)"]

        # given a console that goes by the address, then it must be verified
        async with console_of(tmp_path / "other", forger, claim="email") as console:
            unverified = await answer_of(console, forger, email="mail@example.com")
            assert (unverified.status, "email_verified" in unverified.text) == (403, True)
            verified = {"email": "mail@example.com", "email_verified": True}
            assert (await answer_of(console, forger, **verified)).status == 303
            assert _names(console) == ["acme/viewer (mail@example.com)"]


def _names(console: Console) -> list[str]:
    return [each.name for each in console.accounts.sessions]


async def test_a_session_ends_with_its_token_or_after_the_minutes_of_the_settings(
    tmp_path: Path,
) -> None:
    with forging() as forger:
        for minutes, most_s in ((None, 330), (2, 120)):
            folder = tmp_path / str(minutes)
            async with console_of(folder, forger, sessionMinutes=minutes) as console:
                await answer_of(console, forger)
                (session,) = console.accounts.sessions
                assert most_s - 5 < session.ends - time.monotonic() <= most_s


async def test_browsers_elsewhere_have_a_cookie_of_their_host_alone_and_no_one_time_link(
    tmp_path: Path,
) -> None:
    with forging() as forger:
        # given a console that a proxy makes known as another host
        async with console_of(tmp_path, forger, url="https://console.example.com") as console:
            host = {"Host": "console.example.com"}
            browser = Browser(console.url, headers=host)
            link = (tmp_path / "links" / "acme.owner").read_text().strip()

            # when a one-time link is opened there, then it does not count, and is not spent
            refused = await browser.get(link)
            assert (refused.status, "on the machine of the console" in refused.text) == (403, True)
            assert (await Browser(console.url).get(link)).status == 303

            # when a person signs in, then the provider leads back there, to a cookie of its own
            started = await browser.get("/login/start")
            assert "Secure" in started.headers["set-cookie"]
            asked = await ask(browser)
            assert asked["redirect_uri"] == "https://console.example.com/login/callback"
            forger.token = forger.sign(forger.claims(asked["nonce"]))
            entered = await browser.get(f"/login/callback?code=1&state={asked['state']}")
            assert entered.headers["location"] == "/nodepools"
            (name,) = browser.cookies
            assert name.startswith("__Host-nodepool-console-")

            # and who begins on this machine is led there first, and other hosts are refused
            led = await Browser(console.url).get("/login/start?next=/events")
            to = "https://console.example.com/login/start?next=%2Fevents"
            assert led.headers["location"] == to
            assert (
                await Browser(console.url, headers={"Host": "evil"}).get("/login")
            ).status == 421
