"""The pages of the alerts, and what each says to type."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parents[2] / "deploy" / "runbooks"
RUNBOOKS: Final = sorted(_FOLDER.glob("*.md"))
ALERTS: Final = [page for page in RUNBOOKS if page.stem != "README"]
OF_AGENTS: Final = [page for page in ALERTS if page.stem.startswith("NodepoolAgent")]
"""The pages that are typed beside a cluster of Kubernetes."""
_EXIT: Final = re.compile(r"^(?P<line>.*?)(?:\s+# exit (?P<code>\d+))?$")


def commands(page: Path) -> Sequence[tuple[str, int]]:
    """The lines to type on a page, with the exit codes that they should have."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    found = [_EXIT.fullmatch(line) for block in blocks for line in block.splitlines()]
    return [(match["line"], int(match["code"] or 0)) for match in found if match]
