"""What an API server refuses, and why."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

Document = Mapping[str, object]
"""An object as decoded from JSON."""
TERMINATING: Final = "NamespaceTerminating"
"""The cause in a refusal that means that nothing can be created in a namespace being deleted."""


class ApiUnreachable(Exception):
    """No reply arrived, so the change may or may not have been made; the message is one line."""


class ApiFailure(Exception):
    """The API server refused a request, and nothing was changed.

    code: the HTTP status.
    reason: the reason of the Status object, such as `NotFound` or `AlreadyExists`.
    causes: the message of each cause in the Status, by the reason of the cause.
    fields: the fields of the object that the Status names.
    message: its message, as one line.
    retry_after_s: how long the API server asks to wait before a retry; 0 if it does not ask.
    """

    def __init__(self, code: int, status: Mapping[str, object], retry_after_s: float) -> None:
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.message = " ".join(str(status.get("message") or "").split()) or f"HTTP {code}"
        causes = _causes(status)
        self.causes = {str(each.get("reason")): str(each.get("message") or "") for each in causes}
        self.fields = tuple(str(each["field"]) for each in causes if each.get("field"))
        self.retry_after_s = retry_after_s
        super().__init__(self.message)

    @property
    def lacks_right(self) -> bool:
        """Whether the account lacks the right to make this request, regardless of the object.

        Admission also refuses individual objects with 403, but with a different message.
        """
        return self.code == 401 or (self.code == 403 and bool(_NO_RIGHT.search(self.message)))

    @property
    def is_lasting(self) -> bool:
        """Return whether a retry would be refused too, because of the content of the request."""
        return 400 <= self.code < 500 and self.code not in _PASSING and not self.lacks_right


_PASSING: Final = frozenset({404, 408, 409, 410, 429})
"""The codes for a missing object, a changed object, or a request that comes too early."""
_NO_RIGHT: Final = re.compile(r'User ".*" cannot \w+ (resource|path) "')
"""The message of the API server if authorization fails; no field of its Status says so."""


def part(document: Document, name: str) -> Document:
    """Return the object at a field; an empty object if the field holds anything else."""
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _causes(status: Mapping[str, object]) -> Sequence[Document]:
    causes = part(status, "details").get("causes")
    listed = causes if isinstance(causes, list) else ()
    return [each for each in listed if isinstance(each, Mapping)]
