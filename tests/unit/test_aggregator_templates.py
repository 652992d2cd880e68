"""The templates that the aggregator keeps: the newest of a NodePool, and those that a Node has."""

from immutables import Map

from aggregator.templates import Template, Templates, add_template, drop_templates, move_node
from contracts.samples import sample
from nodepool.contract.events import NodeTemplateChanged
from nodepool.contract.keys import pool_key

KEY = pool_key("acme", "prod", "train")


def with_revision(templates: Templates, revision: int) -> Templates:
    """The templates with one more, whose annotations tell its revision."""
    of = {"org": "acme", "cluster": "prod", "pool": "train"}
    annotations = {"revision": f"{revision}"}
    event = sample(NodeTemplateChanged, **of, revision=revision, annotations=annotations)
    return add_template(templates, event)


def nodes(templates: Templates) -> dict[int, int]:
    """How many Nodes have each revision."""
    known: Map[int, Template] = templates.get(KEY, Map())
    return {revision: template.nodes for revision, template in known.items()}


def test_only_the_newest_of_a_pool_without_nodes_is_kept() -> None:
    templates: Templates = Map()
    for revision in range(1, 1_000):
        templates = with_revision(templates, revision)

    assert nodes(templates) == {999: 0}


def test_an_older_one_is_kept_for_as_long_as_a_node_has_it() -> None:
    templates = with_revision(Map(), 1)
    for _ in range(2):
        templates = move_node(templates, KEY, 0, 1)

    templates = with_revision(templates, 2)
    assert nodes(templates) == {1: 2, 2: 0}

    templates = move_node(templates, KEY, 1, 2)
    assert nodes(templates) == {1: 1, 2: 1}

    templates = move_node(templates, KEY, 1, 0)
    assert nodes(templates) == {2: 1}


def test_the_newest_stays_though_no_node_has_it_any_more() -> None:
    templates = move_node(with_revision(Map(), 1), KEY, 0, 1)

    assert nodes(move_node(templates, KEY, 1, 0)) == {1: 0}


def test_those_of_a_pool_that_is_gone_are_dropped() -> None:
    assert drop_templates(with_revision(Map(), 1), KEY) == Map()
    assert drop_templates(Map(), KEY) == Map()
