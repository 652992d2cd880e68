"""What `explain` and `api-resources` print about objects."""

from collections.abc import Mapping

import pytest
from immutables import Map

from aggregator.documents import document
from aggregator.objects import NodePoolObject
from nodepool.cli.app import run
from nodepool.cli.schema import nodepool
from nodepool.contract.conditions import Validated, changed
from nodepool.contract.keys import pool_key
from nodepool.contract.reference import Field
from unit.samples import FULL, NOON


def paths(field: Field) -> set[str]:
    """The path of each field inside a field."""
    return {
        f"{each.name}{inner}"
        for each in field.fields
        for inner in ("", *(f".{path}" for path in paths(each)))
    }


def written(value: object) -> set[str]:
    """The path of each value in a document; a list has the paths of what it holds."""
    if isinstance(value, Mapping):
        return {
            f"{key}{inner}"
            for key, each in value.items()
            for inner in ("", *(f".{path}" for path in written(each)))
        }
    if isinstance(value, list):
        return {path for each in value for path in written(each)}
    return set()


def test_every_field_of_a_full_nodepool_is_documented() -> None:
    condition = changed(None, Validated.VALID, "fine", 1, NOON)
    shown = document(
        NodePoolObject(
            key=pool_key("acme", "prod", "train"),
            uid="u",
            zone="Z",
            created=NOON,
            generation=1,
            labels={},
            annotations={},
            spec=FULL,
            version=1,
            deleting=NOON,
            conditions=Map({"Validated": condition}),
        )
    )
    free = ("spec.nodeLabels.", "spec.nodeAnnotations.")

    known = paths(nodepool())
    unknown = {path for path in written(shown) - known if not path.startswith(free)}

    assert unknown == set()


def test_every_field_of_a_spec_has_a_text() -> None:
    spec = next(field for field in nodepool().fields if field.name == "spec")

    assert [field.name for field in spec.fields if not (field.text or field.about)] == []


def test_a_field_is_explained_with_its_limits_and_its_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["explain", "nodepool.spec.lifecycle.scaleDownStrategy"]) == 0
    assert capsys.readouterr().out == (
        "GROUP:      compute.coreweave.com\n"
        "KIND:       NodePool\n"
        "VERSION:    v1alpha1\n"
        "\n"
        "FIELD: scaleDownStrategy <string>\n"
        "\n"
        "DESCRIPTION:\n"
        "    Which Nodes may be removed when the NodePool shrinks. One of IdleOnly,\n"
        "    PreferIdle. Default: IdleOnly.\n"
    )


def test_the_fields_of_fields_are_listed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "np.spec.schedulingPriority", "--recursive"]) == 0
    assert capsys.readouterr().out.endswith("FIELDS:\n  value\t<integer>\n")


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("np.spec.targetnodes", 1, "spec has no field 'targetnodes'; did you mean targetNodes"),
        ("np.kind.x", 1, "kind has no field 'x'; its fields: none"),
        ("pods", 2, "TYPE: 'pods' is not a type of object; use nodepools"),
    ],
)
def test_what_is_no_field_is_an_error_that_names_the_nearest_one(
    path: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", path]) == code
    assert message in capsys.readouterr().err


def test_the_types_of_objects_are_listed_with_their_short_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["api-resources"]) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()

    assert header.split() == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert first.split() == [
        "nodepools",
        "np",
        "compute.coreweave.com/v1alpha1",
        "false",
        "NodePool",
    ]
