"""How many examples hypothesis tries for a property whose examples take long."""

from hypothesis import settings

USUAL = 60
"""How many examples each property gets by default; see the option `--examples`."""


def tried(examples: int) -> settings:
    """Return settings with this number of examples, which `--examples` raises in proportion."""
    return settings(max_examples=max(1, examples * settings().max_examples // USUAL), deadline=None)
