"""The templates that are too large to be part of each Node; kept while a Node has them."""

from collections.abc import Mapping
from dataclasses import dataclass

from immutables import Map

from nodepool.contract.events import NodeTemplateChanged
from nodepool.contract.keys import PoolKey
from nodepool.contract.model import Taint
from nodepool.state.values import replace


@dataclass(frozen=True, slots=True)
class Template:
    """The labels, annotations and taints that Nodes of a NodePool have in common.

    nodes: how many Nodes have this template.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    nodes: int = 0


Templates = Map[PoolKey, Map[int, Template]]
"""The templates of each NodePool by revision: the newest, and all that a Node still has."""


def add_template(templates: Templates, event: NodeTemplateChanged) -> Templates:
    """Return the templates with a new template; drop older templates that no Node has."""
    known = templates.get(event.key, Map())
    kept = {revision: template for revision, template in known.items() if template.nodes}
    template = Template(event.labels, event.annotations, event.taints)
    return templates.set(event.key, Map({**kept, event.revision: template}))


def move_node(templates: Templates, key: PoolKey, before: int, after: int) -> Templates:
    """Return the templates after a Node moved from `before` to `after`; 0 is no template."""
    if before == after:
        return templates
    known = templates.get(key, Map())
    for revision, change in ((before, -1), (after, 1)):
        template = known.get(revision)
        if template is None:
            continue
        template = replace(template, nodes=template.nodes + change)
        is_kept = template.nodes or revision == max(known)
        known = known.set(revision, template) if is_kept else known.delete(revision)
    return templates.set(key, known) if known else templates


def drop_templates(templates: Templates, key: PoolKey) -> Templates:
    """Return the templates without the templates of a NodePool that is gone."""
    return templates.delete(key) if key in templates else templates
