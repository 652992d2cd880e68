"""The fields of a model, read from its class."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from nodepool.contract import reference
from nodepool.contract.reference import describe_model


class Colour(StrEnum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Wheel(BaseModel):
    """One wheel.

    size: its diameter,
        in inches.
    """

    size: Annotated[int, Field(ge=1, le=30)]


class Bicycle(BaseModel):
    """What a person rides.

    It has no engine.

    name: what it is called.
    colour, rim: its colour, and that of its rims.
    wheels: all of them.
    """

    kind: Literal["Bicycle"] = "Bicycle"
    name: Annotated[str, Field(min_length=1)]
    colour: Colour = Colour.RED
    rim: Colour | None = None
    wheels: Annotated[tuple[Wheel, ...], Field(max_length=3)] = ()
    labels: dict[str, str] = {}


def field(
    name: str,
    type: str,
    text: str = "",
    limits: tuple[str, ...] = (),
    default: str = "",
    required: bool = False,
    fields: tuple[reference.Field, ...] = (),
    about: str = "",
) -> reference.Field:
    return reference.Field(name, type, text, required, limits, default, fields, about)


SIZE = field("size", "integer", "Its diameter, in inches.", ("From 1 to 30.",), required=True)
COLOURS = ("One of red, blue.",)
RIM = "Its colour, and that of its rims."


def test_a_model_has_its_fields_with_types_limits_defaults_and_documentation() -> None:
    assert describe_model(Bicycle, "bicycle") == field(
        "bicycle",
        "Object",
        required=True,
        fields=(
            field("kind", "string", limits=("Always Bicycle.",), default="Bicycle"),
            field(
                "name",
                "string",
                "What it is called.",
                ("At least 1 characters.",),
                required=True,
            ),
            field("colour", "string", RIM, COLOURS, "red"),
            field("rim", "string", RIM, COLOURS),
            field(
                "wheels",
                "[]Object",
                "All of them.",
                ("At most 3 items.",),
                fields=(SIZE,),
                about="One wheel.",
            ),
            field("labels", "map[string]string"),
        ),
        about="What a person rides. It has no engine.",
    )


def test_the_notes_of_a_field_are_its_limits_and_its_default() -> None:
    assert field("colour", "string", limits=COLOURS, default="red").notes == (
        "One of red, blue.",
        "Default: red.",
    )
    assert SIZE.notes == ("From 1 to 30.",)
