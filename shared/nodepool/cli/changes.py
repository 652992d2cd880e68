"""What `get --watch` prints: a list of objects, and then each change of an object."""

from collections.abc import Sequence

from nodepool.cli.output import is_named
from nodepool.cli.sources import Item
from nodepool.cli.view import View


class Changes:
    """Prints a list of objects, and then each change of an object.

    only_changes: whether to omit the list.
    """

    def __init__(self, view: View, *, only_changes: bool = False) -> None:
        self.view = view
        self.only_changes = only_changes
        self._table = view.table()
        self._known: dict[str, Item] = {}
        self._is_listed = False

    @property
    def is_empty(self) -> bool:
        """Return whether no objects with these names exist."""
        return not self._known

    def take(self, item: Item) -> None:
        """Keep an object until the list is finished; after that, print it as a change.

        A deleted object is printed in its last state, as kubectl does.
        """
        deleted = item.document is None
        shown = self._known.pop(item.key, None) if deleted else item
        if shown is None or shown.document is None:
            return
        if not deleted and is_named(self.view.kind, shown.document, self.view.names):
            self._known[item.key] = shown
        if self._is_listed and self.view.includes(shown.document):
            self._print([shown])

    def finish_list(self) -> list[str]:
        """Print the list and return the names that no object has.

        If a name has no object, or if only changes are wanted, no list is printed.
        """
        self._is_listed = True
        missing = self.view.missing([item.document or {} for item in self._known.values()])
        if not missing and not self.only_changes:
            self._print(self.view.choose_items([item for _, item in sorted(self._known.items())]))
        return missing

    def _print(self, items: Sequence[Item]) -> None:
        form = self.view.format
        if form.is_whole:
            for item in items:
                form.print_one_of_many(item.document or {})
        elif items and form.form == "name":
            self.view.print_names([item.document or {} for item in items])
        elif items:
            self.view.print_items(self._table, items)
