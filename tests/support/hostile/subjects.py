"""Subjects as a hostile sender chooses them: any that a client may publish on.

Everything is drawn from a `Random`, so that both a seeded simulation and hypothesis can draw it.
"""

from random import Random

from nodepool.contract import commands, events
from nodepool.contract.services import SERVICES

NAMES = (*sorted(commands.COMMANDS), *sorted(events.__all__), "MakeCoffee", "CWNodePainted")
"""The names of all messages, and two that are none."""
TOKENS = (
    "acme",
    "umbrella",
    "prod",
    "p0",
    "_",
    "fleet",
    "US-EAST-04A",
    "*",
    ">",
    "~",
    "a~b",
    "",
    "\x00",
    "\u00e9",
    "\ufffd",
    "cmd",
    "evt",
    "x" * 254,
    "x" * 1_300,
)
"""Tokens that identify something, or could not."""


def subject(random: Random) -> str:
    """A subject below `np.`, mostly of one of the shapes that messages have."""
    identity = [random.choice(TOKENS) for _ in range(3)]
    service = random.choice((*SERVICES, "clock", "nobody", "*"))
    name = random.choice(NAMES)
    tokens = random.choice(
        (
            ["np", "cmd", *identity, name],
            ["np", "evt", service, *identity, name],
            ["np", "evt", "clock", service, "_", "_", "Wake"],
            ["np", "commit", service],
            ["np", "dead", service],
            ["np", random.choice(TOKENS), service],
        )
    )
    chance = random.random()
    if chance < 0.1:
        tokens.insert(random.randrange(len(tokens) + 1), random.choice(TOKENS))
    elif chance < 0.2:
        del tokens[random.randrange(len(tokens))]
    return ".".join(tokens)


def same_shape(random: Random, subject: str) -> str:
    """The subject with another token in place of one of its own."""
    tokens = subject.split(".")
    tokens[random.randrange(1, len(tokens))] = random.choice((*TOKENS, *NAMES, *SERVICES))
    return ".".join(tokens)
