"""The alert rules as an object of the Prometheus operator: the same text below `spec`.

`python -m monitoring.rules` writes it.
"""

from pathlib import Path
from textwrap import indent

DEPLOY = Path(__file__).parents[2]
RULES = DEPLOY / "prometheus" / "nodepool.rules.yml"
FILE = DEPLOY / "kubernetes" / "monitoring" / "prometheus-rule.yaml"
HEAD = """\
# Made of deploy/prometheus/nodepool.rules.yml by `make rules`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: nodepool
spec:
"""


def text() -> str:
    """Return the manifest of the PrometheusRule."""
    return HEAD + indent(RULES.read_text(encoding="utf-8"), "  ")


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
