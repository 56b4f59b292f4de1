"""The mutation gate: do the crash tests catch the bugs they are there for?

    PYTHONPATH=tests python -m crash.gate [NAME…]

Each seeded bug goes into its own copy of the library and the command line, and the tests that must catch it run against
that copy. Only a failed assertion counts as a catch: a timeout or another error says nothing about the bug. First the
same tests run against an unchanged copy, and must pass.

Some bugs show only when a kill or a signal comes at the right moment. What was missed is therefore tried again, at most
twice, and the line says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from crash import noticing
from crash.mutants import MUTANTS
from crash.seeding import COMMAND_LINE, LIBRARY, Mutant, seed
from crash.workload import tmpfs

ROOT = Path(__file__).parent.parent.parent
AT_ONCE = 2
HANGS_SECONDS = 300
TRIES = 3
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
    tries: int = 1

    @property
    def is_right(self) -> bool:
        return not self.trouble and bool(self.caught_by) == (self.mutant is not WITHOUT)

    def __str__(self) -> str:
        said = self.caught_by or ("-" if self.mutant is WITHOUT else "NOTHING CAUGHT IT")
        again = f" (try {self.tries})" if self.tries > 1 else ""
        trouble = f"  {self.trouble}" if self.trouble else ""
        return f"{self.seconds:5.1f} s  {said}{again}{trouble}"


def judge(mutant: Mutant) -> Verdict:
    """The verdict on a bug: of the first try that caught it, or of the last."""
    verdict = _judge_once(mutant)
    while not verdict.is_right and mutant is not WITHOUT and verdict.tries < TRIES:
        verdict = replace(_judge_once(mutant), tries=verdict.tries + 1)
    return verdict


def _judge_once(mutant: Mutant) -> Verdict:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agentrun-gate-", dir=tmpfs()) as folder:
        for package in (LIBRARY, COMMAND_LINE):
            # With its compiled modules, which stay valid: a copy keeps the times of the files.
            shutil.copytree(package, Path(folder, package.name))
        if mutant is not WITHOUT:
            path, text = seed(mutant)
            Path(folder, path).write_text(text)
        # A seeded bug may keep a condition from ever coming: that is a catch, and need not take two minutes.
        patience = {} if mutant is WITHOUT else {"AGENTRUN_TEST_PATIENCE_SECONDS": "20"}
        caught_by, trouble = _run_tests(mutant.tests, Path(folder), patience)
    return Verdict(mutant, caught_by, trouble, time.monotonic() - began)


def _run_tests(tests: tuple[str, ...], folder: Path, environ: dict[str, str]) -> tuple[str, str]:
    """The first test with a failed assertion; without one, what is wrong with those that failed otherwise."""
    report = folder / "failures.jsonl"
    options = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-p", "crash.noticing", "-o", f"timeout={HANGS_SECONDS}"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        # The copy comes before the installed library.
        env={
            **os.environ,
            **environ,
            "PYTHONPATH": f"{folder}:{ROOT / 'tests'}",
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
    for failure in failures:
        if failure.is_assertion:
            return failure.test.rpartition("/")[2], ""
    return failures[0].test.rpartition("/")[2], f"no assertion failed, but: {failures[0].message}"


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
            print(f"{verdict.mutant.name:{width}}  {verdict}", flush=True)
    wrong = [verdict for verdict in verdicts if not verdict.is_right]
    caught = sum(verdict.is_right for verdict in verdicts if verdict.mutant is not WITHOUT)
    seeded = sum(mutant is not WITHOUT for mutant in chosen)
    print(f"{caught} of {seeded} seeded bugs caught, in {time.monotonic() - began:.0f} s")
    for verdict in wrong:
        print(f"WRONG: {verdict.mutant.name}  {verdict}")
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if run_gate(sys.argv[1:]) else 1)
