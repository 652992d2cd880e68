"""Decides from the claims of an OpenID provider as which user a person works."""

import re
from collections.abc import Mapping
from typing import Final

NAME_MAX: Final = 100
"""The most characters of a person's name, and of a value that a page shows."""
SHOWN_MAX: Final = 10
"""The most values of a claim that a page shows."""
_OTHER: Final = re.compile(r"[^\w.@+|:-]")


class Unmapped(Exception):
    """No user belongs to these claims; the text names the claim that is missing."""


def find_user(claims: Mapping[str, object], claim: str, users: Mapping[str, str]) -> str:
    """Return the user of the first entry in `users` that is a value of a claim.

    Raises Unmapped if the claim is missing or has no such value.
    """
    given = claims.get(claim)
    values = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    if isinstance(given, str):
        values = [given]
    if not values:
        raise Unmapped(f"The claim {claim} is missing: the provider names none for you.")
    # Whoever may type an address at the provider would else be who they please.
    if claim == "email" and claims.get("email_verified") is not True:
        raise Unmapped("The claim email_verified is missing or not true, so email does not count.")
    known = set(values)
    user = next((user for value, user in users.items() if value in known), None)
    if user is None:
        shown = ", ".join(each[:NAME_MAX] for each in values[:SHOWN_MAX])
        raise Unmapped(f"The claim {claim} has no value that gives access here. It is: {shown}.")
    return user


def name_person(claims: Mapping[str, object]) -> str:
    """Return the verified email address of a person, or else the subject of the token."""
    email = claims.get("email") if claims.get("email_verified") is True else None
    name = email if isinstance(email, str) and email else str(claims["sub"])
    return _OTHER.sub("_", name)[:NAME_MAX]
