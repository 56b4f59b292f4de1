"""Seeding a bug: where in the syntax of the library, or of the command line, it goes. The place is found by function
and pattern instead of by file and line.

A pattern is Python: an expression, or statements that follow one another; `...` stands for any expression. Comments,
formatting, the module that holds the function, and everything else in the function may change without touching the
seeded bugs.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_REPOSITORY = Path(__file__).parent.parent.parent
LIBRARY, COMMAND_LINE = _REPOSITORY / "runner" / "agentrun", _REPOSITORY / "cli" / "agentrun_cli"

_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug to seed, with the tests that must catch it."""

    name: str
    where: str
    """The qualified name of a function: `FolderStore.finish`; `agentrun_cli:launch` for one of the command line."""
    old: str
    new: str
    """What replaces `old`; empty to leave it out."""
    tests: tuple[str, ...]
    which: int | None = None
    """Which match is meant, counted from 0; None if there must be exactly one."""


class DoesNotApply(Exception):
    """The library no longer has the place that a mutant names."""


def seed(mutant: Mutant) -> tuple[Path, str]:
    """The file to change, which begins with its package, and its new text."""
    path, tree, scope = _find_scope(mutant.where)
    _replace(mutant, scope)
    _parsed.cache_clear()
    return path, ast.unparse(ast.fix_missing_locations(tree))


def check(mutant: Mutant) -> None:
    """Raise DoesNotApply unless the mutant's place can be found."""
    _, _, scope = _find_scope(mutant.where)
    _locate(mutant, scope)
    ast.parse(textwrap.dedent(mutant.new))


@cache
def _texts() -> dict[Path, str]:
    roots = (LIBRARY, COMMAND_LINE)
    return {path.relative_to(root.parent): path.read_text() for root in roots for path in sorted(root.rglob("*.py"))}


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(_texts()[path])


def _find_scope(name: str) -> tuple[Path, ast.Module, _Scope]:
    package, _, function = name.rpartition(":")
    names = function.split(".")
    texts = {path: text for path, text in _texts().items() if path.parts[0] == (package or LIBRARY.name)}
    # Parsing all of the library takes a second.
    trees = [(path, _parsed(path)) for path, text in texts.items() if f"def {names[-1]}(" in text]
    found = [(path, tree, scope) for path, tree in trees for scope in _scopes(tree, names)]
    if len(found) != 1:
        places = ", ".join(str(path) for path, _, _ in found) or "nowhere"
        raise DoesNotApply(f"{name} is defined {len(found)} times ({places}); it must be once")
    return found[0]


def _scopes(node: ast.AST, names: Sequence[str]) -> Iterator[_Scope]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Scope):
            if child.name == names[0]:
                if len(names) == 1:
                    yield child
                else:
                    yield from _scopes(child, names[1:])
        elif isinstance(child, ast.stmt):
            yield from _scopes(child, names)


@dataclass(frozen=True, slots=True)
class _Place:
    """A run of statements in a block, or one expression in the field of a node."""

    parent: ast.AST
    field: str
    start: int | None
    line: int
    count: int = 1


def _replace(mutant: Mutant, scope: _Scope) -> None:
    place = _locate(mutant, scope)
    new = ast.parse(textwrap.dedent(mutant.new)).body
    held = getattr(place.parent, place.field)
    if isinstance(held, list) and place.start is not None and isinstance(held[place.start], ast.stmt):
        held[place.start : place.start + place.count] = new
        if not held:
            held.append(ast.Pass())
        return
    (statement,) = new
    assert isinstance(statement, ast.Expr), f"{mutant.name}: an expression is replaced by an expression"
    if place.start is None:
        setattr(place.parent, place.field, statement.value)
    else:
        held[place.start] = statement.value


def _locate(mutant: Mutant, scope: _Scope) -> _Place:
    pattern = ast.parse(textwrap.dedent(mutant.old)).body
    places = list(_statements(scope, pattern))
    if not places and len(pattern) == 1 and isinstance(pattern[0], ast.Expr):
        places = list(_expressions(scope, pattern[0].value))
    places.sort(key=lambda place: place.line)
    if mutant.which is None and len(places) == 1:
        return places[0]
    if mutant.which is not None and len(places) > max(mutant.which, 1):
        return places[mutant.which]
    wanted = "once" if mutant.which is None else f"more than {max(mutant.which, 1)} times"
    raise DoesNotApply(f"its pattern is {len(places)} times in {mutant.where}; it must be there {wanted}")


def _statements(scope: _Scope, pattern: Sequence[ast.stmt]) -> Iterator[_Place]:
    for node in ast.walk(scope):
        for field, held in ast.iter_fields(node):
            if not isinstance(held, list) or not held or not isinstance(held[0], ast.stmt):
                continue
            for start in range(len(held) - len(pattern) + 1):
                if all(_matches(one, held[start + n]) for n, one in enumerate(pattern)):
                    yield _Place(node, field, start, held[start].lineno, len(pattern))


def _expressions(scope: _Scope, pattern: ast.expr) -> Iterator[_Place]:
    for node in ast.walk(scope):
        for field, held in ast.iter_fields(node):
            if isinstance(held, ast.expr) and _matches(pattern, held):
                yield _Place(node, field, None, held.lineno)
            elif isinstance(held, list):
                for start, one in enumerate(held):
                    if isinstance(one, ast.expr) and _matches(pattern, one):
                        yield _Place(node, field, start, one.lineno)


def _matches(pattern: object, found: object) -> bool:
    if isinstance(pattern, ast.Constant) and pattern.value is ...:
        return isinstance(found, ast.expr)
    if isinstance(pattern, list):
        return (
            isinstance(found, list)
            and len(pattern) == len(found)
            and all(_matches(one, other) for one, other in zip(pattern, found, strict=True))
        )
    if not isinstance(pattern, ast.AST):
        return pattern == found
    if type(pattern) is not type(found):
        return False
    return all(
        _matches(value, getattr(found, field))
        for field, value in ast.iter_fields(pattern)
        if field not in ("ctx", "type_comment")
    )
