"""How many inputs one commit may have; pure."""

from nodepool.engine.replica import INPUTS_MAX


class BatchSize:
    """The limit on the size of the next commit of a process, across sessions.

    The first commit has one input, and each later commit may have twice as many as the previous
    commit. So if an input crashes the process, after a few restarts it is the next input after the
    last commit, and a person can find it.

    After a refusal, a commit has one input again, because a small commit fits first if the server
    has little room. The size then grows faster, because the inputs did not cause the refusal.

    most: how many inputs the next commit may have.
    """

    def __init__(self) -> None:
        self.most = 1
        self._factor = 2

    def grow(self) -> None:
        """Grow the batch size: the last batch was as large as allowed, or had all open inputs."""
        self.most = min(self._factor * self.most, INPUTS_MAX)

    def note_refusal(self) -> None:
        """Note that the server has refused a commit for a reason of its own."""
        self.most, self._factor = 1, 8
