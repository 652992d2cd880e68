"""An index of machine labels, to find the machines that a node affinity accepts."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, or_

from nodepool.contract.affinity import (
    Affinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Operator,
    holds,
    terms,
    unfit,
)

LabelsOf = Callable[[str], Sequence[str | None]]
"""The values of one label of all machines, in order; None for a machine without the label."""
REMEMBERED_MAX = 256
"""The most affinities, and the most labels, that an index caches; a full cache is cleared.

Without a limit, the caches could grow forever: users choose the affinities and labels, and the
machines may never change.
"""


class LabelIndex:
    """Machines by the values of their labels.

    A set of machines is an integer whose bit n stands for machine n. When an affinity
    first names a label, the index reads the label of every machine once. It evaluates each affinity
    once. After that, the cost does not depend on the number of machines, except for operations on
    these integers.

    size: how many machines there are.
    labels_of: returns the values of a label of all machines.
    """

    def __init__(self, size: int, labels_of: LabelsOf) -> None:
        self._all = (1 << size) - 1
        self._labels_of = labels_of
        self._values: dict[str, dict[str | None, int]] = {}
        self._accepted: dict[int, tuple[Affinity, int]] = {}

    @property
    def remembered(self) -> int:
        """Return how many affinities and labels the index caches in total."""
        return len(self._accepted) + len(self._values)

    def find_accepted(self, affinity: Affinity | None) -> int:
        """Return the machines that an affinity accepts; without an affinity, all machines.

        An affinity accepts a machine if every expression of one of its terms holds. A term without
        expressions accepts no machine.
        """
        listed = terms(affinity)
        if affinity is None or not listed:
            return self._all
        # By identity: comparing or hashing an affinity takes as long as evaluating it.
        known = self._accepted.get(id(affinity))
        if known is None:
            known = affinity, reduce(or_, map(self._of_term, listed))
            if len(self._accepted) >= REMEMBERED_MAX:
                self._accepted.clear()
            self._accepted[id(affinity)] = known
        return known[1]

    def _of_term(self, term: NodeSelectorTerm) -> int:
        if not term.match_expressions:
            return 0
        return reduce(and_, map(self._of_expression, term.match_expressions))

    def _of_expression(self, requirement: NodeSelectorRequirement) -> int:
        if unfit(requirement):
            return 0
        by_value = self._by_value(requirement.key)
        match requirement.operator:
            case Operator.IN | Operator.NOT_IN:
                found = (by_value.get(value, 0) for value in requirement.values)
                listed = reduce(or_, found, 0)
                return listed if requirement.operator == Operator.IN else self._all ^ listed
            case Operator.EXISTS:
                return self._all ^ by_value.get(None, 0)
            case Operator.DOES_NOT_EXIST:
                return by_value.get(None, 0)
            case _:
                compared = (bits for value, bits in by_value.items() if holds(requirement, value))
                return reduce(or_, compared, 0)

    def _by_value(self, label: str) -> dict[str | None, int]:
        """Return the machines with each value of a label; machines without it are under None."""
        known = self._values.get(label)
        if known is None:
            known = {}
            for number, value in enumerate(self._labels_of(label)):
                known[value] = known.get(value, 0) | 1 << number
            if len(self._values) >= REMEMBERED_MAX:
                self._values.clear()
            self._values[label] = known
        return known
