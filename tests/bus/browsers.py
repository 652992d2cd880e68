"""A browser that the stories of a process share, and tabs of it in which users have signed in."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import wraps
from typing import Any, Literal, ParamSpec

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Playwright,
    ViewportSize,
    async_playwright,
    expect,
)

from bus.accounts import ORG
from bus.consoles import World
from bus.harness import PATIENCE_S
from support.chromium import CHROMIUM, launch

if CHROMIUM is None:
    pytest.skip("needs the program chromium", allow_module_level=True)

expect.set_options(timeout=PATIENCE_S * 1000)
WATCH = (
    "document.addEventListener('securitypolicyviolation', e => console.error('CSP', e.blockedURI))"
)
RULES = ("wcag2a", "wcag2aa", "wcag21aa", "wcag22aa")
"""The groups of all rules of axe that a page has to keep."""
COLOUR_RULES = ("color-contrast", "link-in-text-block")
"""The rules about colours, which are all that a theme changes."""
AUDIT = """
options => axe.run(options).then(found =>
  found.violations.flatMap(each => each.nodes.map(node => `${each.id}: ${node.html}`)))
"""
THEMES: Mapping[Literal["light", "dark"], Sequence[str]] = {"light": RULES, "dark": COLOUR_RULES}
"""The themes, and the rules that each page is audited by there."""
LATE_S = 0.5
"""How late a file comes, in seconds."""
SMALL: ViewportSize = {"width": 320, "height": 640}
LARGE: ViewportSize = {"width": 1280, "height": 900}

P = ParamSpec("P")


class Shared:
    """The driver and the browser of all stories of this process, and the loop they share.

    A driver belongs to the loop that started it, so the stories run there, one after the other.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._driver: Playwright | None = None
        self._browser: Browser | None = None
        self._raised: list[Exception] = []

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """Run a story; where it fails, the next one gets another driver, browser and loop."""
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._runner.get_loop().set_exception_handler(self._note)
        try:
            self._runner.run(self._alone(story), context=copy_context())
        except BaseException:
            self.close()
            raise

    # Any: the options of a context in playwright have many types.
    async def context(self, **given: Any) -> BrowserContext:
        """Return what separates a user's cookies and pages; start a browser that died again."""
        if self._browser is not None:
            with suppress(Error):
                return await self._browser.new_context(**given)
        assert self._driver is not None
        self._browser = await launch(self._driver)
        return await self._browser.new_context(**given)

    def close(self) -> None:
        """End the driver, which ends the browser, and the loop with all that is left in it."""
        runner, driver = self._runner, self._driver
        self._runner = self._driver = self._browser = None
        self._raised = []
        if runner is None:
            return
        with runner:
            if driver is not None:
                with suppress(Error, TimeoutError):
                    runner.run(asyncio.wait_for(driver.stop(), PATIENCE_S))

    async def _alone(self, story: Coroutine[Any, Any, None]) -> None:
        if self._driver is None:
            self._driver = await async_playwright().start()
        before = asyncio.all_tasks()
        await story
        # As at the end of a loop, nothing that a story began goes on in the next one.
        left = asyncio.all_tasks() - before
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        raised, self._raised = self._raised, []
        if raised:
            raise ExceptionGroup("raised where nobody waits for it", raised)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), Exception):
            self._raised.append(error)
        else:
            loop.default_exception_handler(context)


SHARED = Shared()


def in_browser(story: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Have a story run where the browser is."""

    @wraps(story)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        SHARED.run(story(*args, **kwargs))

    pytest.mark.usefixtures("_browser")(run)
    return run


class Tab:
    """A tab of a browser in which a user has signed in, and everything that went wrong in it."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self._base = page, base
        self.faults: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.faults.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.text} at {message.location['url']}")

    async def open(self, path: str) -> None:
        """Go to an address."""
        await self.page.goto(self._base + path)

    async def sees(self, text: str) -> None:
        """Return once a text is shown."""
        try:
            await expect(self.page.locator("main")).to_contain_text(text)
        except AssertionError as error:
            pytest.fail(f"{self.page.url}: {error}; the browser said: {self.faults}")

    async def is_at(self, path: str) -> None:
        """Return once the address is this one."""
        await self.page.wait_for_url(self._base + path)

    async def row(self, name: str) -> str:
        """The text of the row of a NodePool."""
        row = self.page.locator("tr[data-row]", has_text=name)
        return " ".join((await row.inner_text()).split())

    async def focuses(self, text: str) -> None:
        """Return once what has the focus has this text."""
        await expect(self.page.locator(":focus")).to_have_text(text)

    async def audit(self, rules: Sequence[str] = RULES) -> list[str]:
        """What axe finds wrong with the page for people with a disability."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(Axe().axe_script)
        options = {"runOnly": list(rules), "resultTypes": ["violations"]}
        found: list[str] = await self.page.evaluate(AUDIT, options)
        return found

    async def audit_in_each_theme(self) -> list[str]:
        """What axe finds wrong with the page in one theme, and in the other."""
        found = list[str]()
        for theme, rules in THEMES.items():
            await self.page.emulate_media(color_scheme=theme)
            found += [f"{theme}: {each}" for each in await self.audit(rules)]
        return found


@asynccontextmanager
async def tab(
    world: World, user: str = "owner", late: str = "", org: str | None = None, **context: Any
) -> AsyncIterator[Tab]:
    """A tab of a user who has signed in, apart from all others; a file of this name comes late."""
    made = await SHARED.context(**{"viewport": LARGE, "locale": "en-GB", **context})
    try:
        if context.get("java_script_enabled", True):
            await made.add_init_script(WATCH)
        if late:
            await made.route(f"**/{late}", _delay)
        opened = Tab(await made.new_page(), world.console.url)
        await opened.page.goto(world.link(user, ORG if org is None else org))
        yield opened
    finally:
        await made.close()


async def _delay(route: Any) -> None:
    await asyncio.sleep(LATE_S)
    await route.continue_()
