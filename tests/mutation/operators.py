"""Which changes are made to the code: mutmut's, without those that show nothing about the tests.

A value replaced by None, or an argument left out, is refused by the type checker nearly always, and
crashes where it is used: four in five of mutmut's changes are of this kind, and they flatter. In
their place come changes that pass the type check: a condition or a guard is turned round, and a
field is left out of `replace`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import libcst as cst
from mutmut.mutation import mutators

REPLACES = frozenset({"replace", "_replace"})
"""The calls in which each keyword may be left out."""


def negate_test(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    """Turn a condition round, where no operator in it can be changed."""
    if not isinstance(node.test, cst.Comparison | cst.BooleanOperation | cst.UnaryOperation):
        yield node.with_changes(test=_negated(node.test))


def negate_guard(node: cst.MatchCase) -> Iterator[cst.CSTNode]:
    """Turn the guard of a case round, and take it away."""
    if node.guard is not None:
        yield node.with_changes(guard=_negated(node.guard))
        yield node.with_changes(guard=None, whitespace_before_if=cst.SimpleWhitespace(""))


def _negated(test: cst.BaseExpression) -> cst.UnaryOperation:
    inner = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.UnaryOperation(operator=cst.Not(), expression=inner)


def leave_out_field(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Leave each field out of `replace(value, field=…)`."""
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    if not isinstance(name, cst.Name) or name.value not in REPLACES:
        return
    for index, each in enumerate(node.args):
        if each.keyword is not None:
            yield node.with_changes(args=[*node.args[:index], *node.args[index + 1 :]])


def change_text(node: cst.BaseString) -> Iterable[cst.CSTNode]:
    """Change a text once, not its capitals as well."""
    return islice(mutators.operator_string(node), 1)


def drop_case(node: cst.Match) -> Iterator[cst.CSTNode]:
    """Drop each case, but for one that the type checker proves to be out of reach."""
    for index, each in enumerate(node.cases):
        if len(node.cases) > 1 and not is_out_of_reach(each):
            yield node.with_changes(cases=[*node.cases[:index], *node.cases[index + 1 :]])


def is_out_of_reach(node: cst.CSTNode) -> bool:
    """Return whether it is a case of `assert_never`."""
    return isinstance(node, cst.MatchCase) and "assert_never(" in cst.Module([]).code_for_node(node)


OPERATORS: mutators.OPERATORS_TYPE = [
    (cst.BaseNumber, mutators.operator_number),
    (cst.BaseString, change_text),
    (cst.Name, mutators.operator_name),
    (cst.AugAssign, mutators.operator_augmented_assignment),
    (cst.UnaryOperation, mutators.operator_remove_unary_ops),
    (cst.CSTNode, mutators.operator_keywords),
    (cst.CSTNode, mutators.operator_swap_op),
    (cst.IfExp, mutators.operator_if_exp),
    (cst.Match, drop_case),
    (cst.If, negate_test),
    (cst.While, negate_test),
    (cst.MatchCase, negate_guard),
    (cst.Call, leave_out_field),
]
