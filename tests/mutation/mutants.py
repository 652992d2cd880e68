"""The mutants of a module: each is the module with one change."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from itertools import islice
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import Mutation, MutationVisitor, deep_replace
from mutmut.mutation.pragma_handling import IgnoredCode

from mutation.operators import OPERATORS, is_out_of_reach

KEPT_DECORATORS = frozenset({"property", "cached_property", "staticmethod", "classmethod"})
"""Decorators of functions that are changed like others; mutmut leaves out what has one."""


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    path: the module, from the root of the repository.
    """

    path: Path
    source: str
    code: str

    def __str__(self) -> str:
        """Return its module and its change on one line."""
        return f"{self.path}: {' '.join(self.change)}"

    @property
    def folder(self) -> str:
        """Return the folder of its module."""
        return self.path.parent.as_posix()

    @property
    def diff(self) -> str:
        """Return the change, as a patch of the module."""
        before, after = self.source.splitlines(), self.code.splitlines()
        name = str(self.path)
        return "\n".join(unified_diff(before, after, name, name, lineterm="", n=2))

    @property
    def lines(self) -> Sequence[int]:
        """Return the numbers of the lines that it takes away."""
        before, after = self.source.splitlines(), self.code.splitlines()
        codes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        return [line + 1 for tag, i, j, *_ in codes if tag != "equal" for line in range(i, j)]

    @property
    def change(self) -> tuple[str, ...]:
        """Return the lines that it takes away and adds, each with its sign and without indents."""
        lines = self.diff.splitlines()[2:]
        return tuple(f"{line[0]} {line[1:].strip()}" for line in lines if line[0] in "+-")


class Visitor(MutationVisitor):
    """Collects changes in functions and fields, not in what states or describes something."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Assert | cst.Import | cst.ImportFrom) or is_out_of_reach(node):
            return True
        if (
            isinstance(node, cst.Arg)
            and node.keyword is not None
            and node.keyword.value == "strict"
        ):
            return True  # It is an assertion of `zip`.
        if isinstance(node, cst.FunctionDef) and node.decorators:
            names = (each.decorator for each in node.decorators)
            return not all(isinstance(n, cst.Name) and n.value in KEPT_DECORATORS for n in names)
        return bool(super()._skip_node_and_children(node))


def find_changes(source: str) -> tuple[cst.Module, Sequence[Mutation]]:
    """Return a module and each change to it; a statement outside of all definitions has none.

    Tests import a constant of a module and compare with it, so they cannot see it change.
    """
    wrapper = MetadataWrapper(cst.parse_module(source))
    visitor = Visitor(OPERATORS, IgnoredCode(set(), set(), set()))
    wrapper.visit(visitor)
    inside = [each for each in visitor.mutations if each.contained_by_top_level_function]
    return wrapper.module, inside


def apply(module: cst.Module, change: Mutation) -> str:
    """Return the text of a module with this change."""
    changed = deep_replace(module, change.original_node, change.mutated_node)
    assert isinstance(changed, cst.Module), "a change keeps the module"
    return changed.code


def sample(
    root: Path, folders: Sequence[str], count: int, seed: int, only: str = ""
) -> list[Mutant]:
    """Return so many mutants of the modules in these folders, in the order in which they are drawn.

    The same seed draws the same mutants from the same code. The first of them are a fair sample
    too. What Python itself refuses, such as a case after one that takes everything, is no mutant.

    only: a part of the path of each module.
    """
    modules = [path for each in folders for path in sorted((root / each).glob("*.py"))]
    paths = [path for path in modules if only in path.relative_to(root).as_posix()]
    found = {path: find_changes(path.read_text(encoding="utf-8")) for path in paths}
    places = [(path, number) for path in paths for number in range(len(found[path][1]))]
    random.Random(seed).shuffle(places)
    drawn = (_mutant(path.relative_to(root), *found[path], number) for path, number in places)
    return list(islice(filter(is_accepted, drawn), count))


def is_accepted(mutant: Mutant) -> bool:
    """Return whether Python can compile a mutant."""
    try:
        compile(mutant.code, mutant.path, "exec")
    except SyntaxError:
        return False
    return True


def _mutant(path: Path, module: cst.Module, changes: Sequence[Mutation], number: int) -> Mutant:
    return Mutant(path, module.code, apply(module, changes[number]))
