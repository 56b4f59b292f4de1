"""Only the folder store knows the names of its files: the rest of the code asks the port."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY, COMMANDS = ROOT / "runner" / "agentrun", ROOT / "cli" / "agentrun_cli"
KNOW_THEM = (LIBRARY / "store" / "folder", LIBRARY / "store" / "local")
EXPORT = LIBRARY / "people" / "archive.py"
"""Has names for the members of an export, which are no files of a store, though some look the same."""
NAMED = re.compile(r"state\.json|\bjournal-|(^|[/\s\"'`])runs/|^inbox$|(^|/)inbox/|/inbox($|/)")
"""`inbox` on its own is a method and a concept of the port; as a whole string or with a slash it is a folder."""


def docstrings(tree: ast.AST) -> set[int]:
    """Texts that stand alone as a statement: they explain, and open nothing."""
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def names_in(text: str) -> list[str]:
    """The strings in a module's code that name a file of the folder store, with their lines."""
    tree = ast.parse(text)
    explaining = docstrings(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in explaining:
            value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if NAMED.search(value):
                found.append(f"{node.lineno}: {value!r}")
    return found


def modules_that_name_files(root: Path) -> dict[str, list[str]]:
    modules = [
        path
        for path in sorted(root.rglob("*.py"))
        if not path.is_relative_to(KNOW_THEM[0]) and path.parent != KNOW_THEM[1] and path != EXPORT
    ]
    assert len(modules) > 10
    found = {str(path.relative_to(root)): names_in(path.read_text()) for path in modules}
    return {name: lines for name, lines in found.items() if lines}


def test_no_module_of_the_library_outside_the_folder_store_names_its_files() -> None:
    assert modules_that_name_files(LIBRARY) == {}


def test_no_module_of_the_command_line_names_its_files() -> None:
    assert modules_that_name_files(COMMANDS) == {}


@pytest.mark.parametrize(
    "code",
    [
        'folder / "state.json"',
        'f"{folder}/state.json"',
        'name = b"state.json"',
        'f"journal-{n}.jsonl"',
        'folder / "inbox"',
        'f"{folder}/inbox"',
        'glob("inbox/*.json")',
        'f"runs/{run_id}.json"',
        'message = "look into runs/ for it"',
        'def f():\n    """Fine."""\n    return "state.json"',
    ],
)
def test_a_name_is_noticed(code: str) -> None:
    assert names_in(code)


@pytest.mark.parametrize(
    "code",
    [
        "store.inbox()",
        'message = "nothing in the inbox"',
        '"""What state.json says, and what is in inbox/ and runs/."""',
        'class A:\n    b: int\n    """As in state.json."""',
        '"the journal is damaged"',
        'import agentrun.runs.run\n"agentrun.runs"',
    ],
)
def test_what_names_no_file_is_let_through(code: str) -> None:
    assert names_in(code) == []
