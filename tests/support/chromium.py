"""The Chromium of this machine, where there is one."""

import os
import shutil
from typing import Final

from playwright.async_api import Browser, Playwright

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
"""The path of the program; None where there is none."""


async def launch(driver: Playwright) -> Browser:
    """Start a browser; root has no sandbox."""
    sandbox = [] if os.getuid() else ["--no-sandbox"]
    return await driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
