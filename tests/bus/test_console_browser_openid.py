"""Signing in and out at an OpenID provider, in a real browser."""

from pathlib import Path

from playwright.async_api import expect

from bus.browsers import SMALL, Tab, in_browser, tab
from bus.openid import Provider
from bus.test_console_openid import signing_in
from support.openid_provider import PASSWORD


@in_browser
async def test_a_person_signs_in_and_out_at_the_provider(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (world, provider):
        for scripts in (True, False):
            async with tab(world, java_script_enabled=scripts) as olga:
                await sign_in_and_out(olga, provider, scripts=scripts)


async def sign_in_and_out(olga: Tab, provider: Provider, *, scripts: bool) -> None:
    """Go through the pages of the console and of its provider, with scripts and without."""
    # given a browser that follows a link to a page, and is not signed in
    page = olga.page
    # A page that is left may still ask for what is new of it, without its cookie.
    await page.goto("about:blank")
    await page.context.clear_cookies()
    await olga.open("/events?q=a")
    await olga.sees("After you sign in, you return to /events?q=a")
    if scripts:
        await page.set_viewport_size(SMALL)
        assert await olga.audit() == []

    # when its person types a name and a password at the provider
    await page.get_by_role("link", name="Sign in with").click()
    await page.wait_for_url(f"{provider.issuer}/**")
    for field, text in (("login", "olga"), ("password", PASSWORD)):
        await page.locator(f"input[name={field}]").fill(text)
        await page.locator(f"input[name={field}]").press("Enter")

    # then she is at that page, and it names her
    await olga.is_at("/events?q=a")
    await olga.sees("Events")
    await page.set_viewport_size({"width": 1280, "height": 900})
    await expect(page.locator("#top .who")).to_contain_text("acme · olga")

    # when she signs out, then the browser goes to the provider, and comes back
    await page.get_by_role("button", name="Sign out").locator("visible=true").click()
    await olga.is_at("/login")
    await olga.open("/events")
    await olga.sees("Sign in with")

    # and the provider asks for the password again
    await page.get_by_role("link", name="Sign in with").click()
    await expect(page.locator("input[name=login]")).to_be_visible()
    own = [each for each in olga.faults if provider.issuer not in each]
    assert own == []
