"""The mutation gate: do the crash tests catch the bugs they are there for?

    PYTHONPATH=tests python -m crash.gate [NAME…]

Each seeded bug goes into its own copy of the library, and the tests that must catch it run against that copy. Only a
failed assertion counts as a catch: a timeout or another error says nothing about the bug. First the same tests run
against an unchanged copy, and must pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from crash import noticing
from crash.mutants import MUTANTS
from crash.seeding import LIBRARY, Mutant, seed
from crash.workload import tmpfs

ROOT = Path(__file__).parent.parent.parent
AT_ONCE = 2
HANGS_SECONDS = 300
WITHOUT = Mutant(
    "(no bug: all these tests pass)", "", "", "", tuple(dict.fromkeys(t for m in MUTANTS for t in m.tests))
)


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    caught_by: str
    """The test that failed, or empty."""
    trouble: str
    """Why that is no catch: the tests did not run, or failed without a failed assertion."""
    seconds: float

    @property
    def is_right(self) -> bool:
        return not self.trouble and bool(self.caught_by) == (self.mutant is not WITHOUT)


def judge(mutant: Mutant) -> Verdict:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agentrun-gate-", dir=tmpfs()) as folder:
        copy = Path(folder) / "agentrun"
        shutil.copytree(LIBRARY, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not WITHOUT:
            path, text = seed(mutant)
            (copy / path).write_text(text)
        # A seeded bug may keep a condition from ever coming: that is a catch, and need not take two minutes.
        patience = {} if mutant is WITHOUT else {"AGENTRUN_TEST_PATIENCE_SECONDS": "20"}
        caught_by, trouble = _run_tests(mutant.tests, Path(folder), patience)
    return Verdict(mutant, caught_by, trouble, time.monotonic() - began)


def _run_tests(tests: tuple[str, ...], folder: Path, environ: dict[str, str]) -> tuple[str, str]:
    """The first test that failed, and what is wrong with that as a catch."""
    report = folder / "failures.jsonl"
    options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-p", "crash.noticing", "-o", f"timeout={HANGS_SECONDS}"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        # The copy comes before the installed library.
        env={
            **os.environ,
            **environ,
            "PYTHONPATH": f"{folder}:{ROOT / 'tests'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            noticing.VARIABLE: str(report),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if run.returncode == 0:
        return "", ""
    failures = noticing.read(report)
    if run.returncode != 1 or not failures:
        return "", f"pytest exited with {run.returncode}: {run.stdout[-2000:]}"
    first = failures[0]
    return first.test.rpartition("/")[2], "" if first.is_assertion else f"no assertion failed, but: {first.message}"


def run_gate(names: list[str]) -> bool:
    chosen = [mutant for mutant in MUTANTS if not names or any(name in mutant.name for name in names)]
    if not chosen:
        print(f"no seeded bug is called {', '.join(names)}")
        return False
    if not names:
        chosen.insert(0, WITHOUT)
    began = time.monotonic()
    width = max(len(mutant.name) for mutant in chosen)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = []
        for verdict in pool.map(judge, chosen):
            verdicts.append(verdict)
            said = verdict.caught_by or ("-" if verdict.mutant is WITHOUT else "NOTHING CAUGHT IT")
            trouble = f"  {verdict.trouble}" if verdict.trouble else ""
            print(f"{verdict.mutant.name:{width}}  {verdict.seconds:5.1f} s  {said}{trouble}", flush=True)
    wrong = [verdict for verdict in verdicts if not verdict.is_right]
    caught = sum(verdict.is_right for verdict in verdicts if verdict.mutant is not WITHOUT)
    seeded = sum(mutant is not WITHOUT for mutant in chosen)
    print(f"{caught} of {seeded} seeded bugs caught, in {time.monotonic() - began:.0f} s")
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if run_gate(sys.argv[1:]) else 1)
