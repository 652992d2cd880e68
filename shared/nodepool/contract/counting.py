"""Numbers of things in words, as messages for people name them."""


def format_count(count: int, noun: str = "Node") -> str:
    """Return a number and its noun, such as `1 Node` or `2 Nodes`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
