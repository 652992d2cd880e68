"""The one exception of this package, which never leaves it."""

from metal.replies import Failure, Trouble


class Fault(Exception):
    """A request has no usable answer.

    may_have_acted: whether the controller may have carried out what it was asked.
    is_too_long: whether there is an answer, and it is only larger than an answer may be.
    """

    def __init__(
        self,
        trouble: Trouble,
        text: str,
        *,
        may_have_acted: bool = True,
        is_too_long: bool = False,
    ) -> None:
        super().__init__(text)
        self.is_too_long = is_too_long
        self.failure = Failure(trouble, text)
        self.may_have_acted = may_have_acted
