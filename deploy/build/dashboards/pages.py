"""The dashboards, in the order in which a person on call goes through them."""

import json
from pathlib import Path
from typing import Final

from dashboards.fleet import FLEET
from dashboards.nodes import NODES
from dashboards.page import Page, document
from dashboards.pool import POOL
from dashboards.system import SYSTEM

FOLDER: Final = Path(__file__).parents[2] / "grafana" / "dashboards"
PAGES: Final[tuple[Page, ...]] = (FLEET, POOL, NODES, SYSTEM)


def text(page: Page) -> str:
    """Return the content of a dashboard's file."""
    return json.dumps(document(page), indent=2, ensure_ascii=False) + "\n"
