"""How many inputs one commit may have; pure."""

from nodepool.engine.replica import INPUTS_MAX


class BatchSize:
    """The bound on the next commit of a process, whichever session makes it.

    An input that ends the process is the next one after some starts, where a person finds it: at
    first a commit has one input, and later twice as many as the one before it. After a refusal it
    has one again, which finds room first where the server has little; it then grows faster, because
    the refusal was none of its inputs' doing.

    most: how many inputs the next commit may have.
    """

    def __init__(self) -> None:
        self.most = 1
        self._factor = 2

    def grow(self) -> None:
        """Grow the batch size: the last batch was as large as allowed, or had all open inputs."""
        self.most = min(self._factor * self.most, INPUTS_MAX)

    def refused(self) -> None:
        """Note that the server has refused a commit for a reason of its own."""
        self.most, self._factor = 1, 8
