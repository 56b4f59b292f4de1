"""The mutation gate: do the crash tests notice the bugs they are there for?

    PYTHONPATH=tests python -m crash.gate [NAME…]

Each seeded bug goes into a copy of the library of its own; the tests that are to catch it are run against that copy. A
bug that nothing catches fails the gate; so does a test that fails without one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from crash.mutants import MUTANTS, Mutant
from crash.workload import tmpfs

ROOT = Path(__file__).parent.parent.parent
LIBRARY = ROOT / "runner" / "agentrun"
AT_ONCE = 2
WITHOUT = Mutant("(none: all these tests pass)", "", "", "", tuple(dict.fromkeys(t for m in MUTANTS for t in m.tests)))


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    caught_by: str
    """The test that failed, or empty."""
    trouble: str
    """Why the mutant says nothing: it does not apply, or the tests did not run."""
    seconds: float

    @property
    def is_right(self) -> bool:
        return not self.trouble and bool(self.caught_by) == (self.mutant is not WITHOUT)


def apply(mutant: Mutant, library: Path) -> str:
    """Change the copy; say what is in the way, if anything."""
    path = library / mutant.file
    text = path.read_text()
    count = text.count(mutant.old)
    if count != 1:
        return f"its old text is {count} times in {mutant.file}: the code has moved on, so move the mutant"
    changed = text.replace(mutant.old, mutant.new)
    compile(changed, mutant.file, "exec")
    path.write_text(changed)
    return ""


def judge(mutant: Mutant) -> Verdict:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agentrun-gate-", dir=tmpfs()) as folder:
        copy = Path(folder) / "agentrun"
        shutil.copytree(LIBRARY, copy, ignore=shutil.ignore_patterns("__pycache__"))
        trouble = apply(mutant, copy) if mutant is not WITHOUT else ""
        caught_by = ""
        if not trouble:
            caught_by, trouble = _run_tests(mutant.tests, folder)
    return Verdict(mutant, caught_by, trouble, time.monotonic() - began)


def _run_tests(tests: tuple[str, ...], folder: str) -> tuple[str, str]:
    options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=60"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        # The copy goes before the library that is installed.
        env={**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if run.returncode == 0:
        return "", ""
    failed = re.search(r"^FAILED (.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
    if run.returncode != 1 or failed is None:
        return "", f"pytest ended with {run.returncode}: {run.stdout[-2000:]}"
    return failed[1].rpartition("/")[2], ""


def run_gate(names: list[str], *, is_within_suite: bool = False) -> bool:
    """Within the suite, which runs all these tests without a bug anyway, they are not run so once more."""
    chosen = [m for m in MUTANTS if not names or any(name in m.name for name in names)]
    if not chosen:
        print(f"no seeded bug is called {', '.join(names)}")
        return False
    if not names and not is_within_suite:
        chosen.insert(0, WITHOUT)
    began = time.monotonic()
    width = max(len(m.name) for m in chosen)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = []
        for verdict in pool.map(judge, chosen):
            verdicts.append(verdict)
            said = verdict.trouble or verdict.caught_by or ("-" if verdict.mutant is WITHOUT else "NOTHING CAUGHT IT")
            print(f"{verdict.mutant.name:{width}}  {verdict.seconds:5.1f} s  {said}", flush=True)
    wrong = [verdict for verdict in verdicts if not verdict.is_right]
    caught = sum(1 for verdict in verdicts if verdict.is_right and verdict.mutant is not WITHOUT)
    seeded = sum(1 for one in chosen if one is not WITHOUT)
    print(f"{caught} of {seeded} seeded bugs caught, in {time.monotonic() - began:.0f} s")
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if run_gate(sys.argv[1:]) else 1)
