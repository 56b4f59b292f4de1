"""The contract of agentrun.testing on every store there is, and on one that has only what the port demands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agentrun.store.folder.catalogue import FolderCatalogue
from agentrun.store.folder.store import FolderStore
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Catalogue, Lease, Reader, Store
from agentrun.testing import CatalogueContract, StoreContract
from contract.smallest import SmallestLease, SmallestReader, SmallestStore


class TestFolder(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return FolderStore(tmp_path / ".agentrun" / "triage")


class TestFolderWithSmallRedoPart(StoreContract):
    """Where most commits also write to the journal."""

    def make_store(self, tmp_path: Path) -> Store:
        return FolderStore(tmp_path / ".agentrun" / "triage", redo_limit_bytes=400)


class TestFolderWithoutRedoPart(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return FolderStore(tmp_path / ".agentrun" / "triage", redo_limit_bytes=0)


class TestMemory(StoreContract):
    store: MemoryStore | None = None

    def make_store(self, tmp_path: Path) -> Store:
        self.store = self.store or MemoryStore()
        return self.store


class TestSmallest(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return SmallestStore(tmp_path / "triage.pickle")


class TestFolderCatalogue(CatalogueContract):
    def make_catalogue(self, tmp_path: Path) -> Catalogue:
        return FolderCatalogue(tmp_path / ".agentrun")


def test_the_smallest_store_has_the_abstract_methods_and_no_others() -> None:
    for port, smallest in ((Store, SmallestStore), (Reader, SmallestReader), (Lease, SmallestLease)):
        own = {name for name in vars(smallest) if not name.startswith("_")}
        assert own == set(port.__abstractmethods__)


STORE = """
from agentrun.store.memory import MemoryStore

class {name}(MemoryStore):
    def inbox(self):
        return super().inbox(){how}
"""
TESTS = """
import agentrun.testing
from my_store import {name}

class TestMine(agentrun.testing.StoreContract):
    store = None
    def make_store(self, tmp_path):
        self.store = self.store or {name}()
        return self.store
"""


def run_suite(folder: Path, name: str, how: str) -> subprocess.CompletedProcess[str]:
    """As the author of a store runs it: in a folder of theirs, with nothing of our tests."""
    folder.mkdir()
    (folder / "my_store.py").write_text(STORE.format(name=name, how=how))
    (folder / "test_mine.py").write_text(TESTS.format(name=name))
    (folder / "pytest.ini").write_text("[pytest]\n")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")} | {"PYTHONPATH": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "Mine and posted", "test_mine.py"]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def test_the_author_of_a_store_runs_the_suite_with_a_few_lines(tmp_path: Path) -> None:
    good = run_suite(tmp_path / "good", "GoodStore", "")
    assert good.returncode == 0, good.stdout
    bad = run_suite(tmp_path / "bad", "BadStore", "[::-1]")
    assert bad.returncode == 1, bad.stdout
    # The values are shown, as in tests of one's own.
    assert "test_what_is_posted_is_there_in_its_order" in bad.stdout and "At index 0 diff" in bad.stdout


def test_pytest_is_needed_only_by_the_suite() -> None:
    code = "import sys, agentrun; assert 'pytest' not in sys.modules; import agentrun.testing"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
