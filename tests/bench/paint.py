"""When a browser that has no file of the console yet first shows something of a page."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final
from urllib.parse import urljoin

from playwright.async_api import Browser, ViewportSize, async_playwright

from bench.table import NOT_MEASURED
from support.chromium import CHROMIUM, launch

TIMES: Final = 15
SCREEN: Final[ViewportSize] = {"width": 1280, "height": 900}
PLAIN: Final = "/static/none/none"
"""An address whose answer is a line of plain text."""
PAINTED: Final = """() => new Promise(found => new PerformanceObserver(list => {
  for (const each of list.getEntries())
    if (each.name === "first-contentful-paint") found(each.startTime);
}).observe({ type: "paint", buffered: true }))"""


async def measure_paint(page: str, cookies: Mapping[str, str]) -> str:
    """Return the milliseconds until a page, and until plain text of its console, is shown.

    Each try has an empty cache. If there is no Chromium, say that nothing was measured.
    """
    if CHROMIUM is None:
        return f"{NOT_MEASURED}needs the program chromium"
    async with async_playwright() as driver:
        browser = await launch(driver)
        # The first page of a browser also pays for what all later ones share.
        await _time(browser, page, cookies)
        tries = [
            (await _time(browser, page, cookies), await _time(browser, urljoin(page, PLAIN), {}))
            for _ in range(TIMES)
        ]
    shown, plain = zip(*tries, strict=True)
    return f"{_spread(shown)}; plain text {_spread(plain)}"


async def _time(browser: Browser, page: str, cookies: Mapping[str, str]) -> float:
    context = await browser.new_context(viewport=SCREEN)
    try:
        for name, value in cookies.items():
            await context.add_cookies([{"name": name, "value": value, "url": page}])
        opened = await context.new_page()
        await opened.goto(page)
        return float(await opened.evaluate(PAINTED))
    finally:
        await context.close()


def _spread(took: Sequence[float]) -> str:
    return f"{median(took):.0f} ({min(took):.0f} to {max(took):.0f})"
