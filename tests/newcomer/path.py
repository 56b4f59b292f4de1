"""The newcomer's path: 60 letters, a model with bad moments, and a power cut in the middle, in five ways.

    PYTHONPATH=tests python -m newcomer.path [WAY...] [--seed N]

The model is the server on loopback. It refuses some requests with 429, breaks down at others with 500, and cannot read
one letter at all. The first launch is killed at random, once the model has answered some letters; then the newcomer
continues, looks at the reasons, and fixes the letter. The server counts what was paid: each answer that it gave,
whether or not somebody heard it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crash.harness import seeded
from llm.server import Asked, LlmServer, serve
from newcomer.ways import RESUME, WAYS, Way
from pages.shell import reader_environment
from waiting import PATIENCE_SECONDS, eventually

LETTERS = [f"{number:02}" for number in range(1, 61)]
POISON = "37"
MARKS = {
    POISON: "<<400>>",
    **dict.fromkeys(["03", "17", "29", "44", "58"], "<<500 times=1>>"),
    "21": "<<500 times=2>>",
    **dict.fromkeys(["08", "15", "33", "52"], "<<429 after=1 times=1>>"),
}
"""What the model does at some letters, besides answering; see `llm.server`."""
ANSWER_SECONDS = 0.03
"""So that some letters are in flight whenever it is killed."""


def answer_letter(asked: Asked) -> str:
    time.sleep(ANSWER_SECONDS)
    return answer_to(asked.key)


def answer_to(letter: str) -> str:
    return f"Letter {letter} is about a kettle."


@dataclass(frozen=True)
class Told:
    """What came of it, in numbers."""

    way: str
    killed_after: int
    """Letters that the model had answered."""
    results: int
    failures: int
    paid_twice: int
    concurrency: int

    def __str__(self) -> str:
        return (
            f"{self.way}: killed after {self.killed_after} answers; then {self.results} results in order, "
            f"{self.failures} failure, {self.paid_twice} paid twice (at most {self.concurrency})"
        )


class Newcomer:
    """Somebody with a folder of letters, a key and a shell."""

    def __init__(self, home: Path, way: Way, llm: LlmServer) -> None:
        self.way, self.llm = way, llm
        self.folder = home / "letters"
        self._environ = reader_environment(home, OPENAI_BASE_URL=llm.url, OPENAI_API_KEY="sk-none", TERM="dumb")
        self.folder.mkdir()
        if way.init is not None:
            self.call("agentrun", "init", *way.init)
        way.fill_in(self.folder)
        for example in self.folder.glob("items/*"):
            example.unlink()
        (self.folder / "items").mkdir(exist_ok=True)
        for letter in LETTERS:
            self.write(letter, MARKS.get(letter, ""))

    def write(self, letter: str, mark: str = "") -> None:
        path = self.folder / "items" / f"{letter}.txt"
        path.write_text(f"Dear Ada, the kettle leaks again. key={letter} {mark}\n")

    def begin(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            words, cwd=self.folder, env=self._environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    def call(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, which must come with this exit code."""
        process = self.begin(*words)
        try:
            out, said = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
        assert process.returncode == code, f"{words} exited with {process.returncode}:\n{out}{said}"
        return subprocess.CompletedProcess(words, code, out, said)

    def start_and_kill(self, answers: int) -> None:
        """Start, and kill the runner once the model has given so many answers."""
        process = self.begin(*self.way.start)
        try:
            eventually(lambda: len(self.llm.used) >= answers, f"{answers} answers", alive=process)
        except AssertionError as error:
            process.kill()
            error.add_note("".join(process.communicate()))
            raise
        process.kill()
        process.communicate()

    def paid(self) -> Counter[str]:
        """How often the model has answered each letter."""
        return Counter(letter for letter, _, _ in list(self.llm.used))

    def asked_since(self, number: int) -> set[str]:
        return {asked.key for asked in self.llm.asked[number:]}

    def check_results(self, letters: Sequence[str], name: str) -> None:
        """The results of these letters and no others, each its own, in order."""
        output = self.way.output
        expected = [
            {"index": LETTERS.index(letter), "key": f"items/{letter}.txt", "output": output(answer_to(letter))}
            for letter in letters
        ]
        for text in ((self.folder / name).read_text(), self.call("agentrun", "results", "letters").stdout):
            assert [json.loads(line) for line in text.splitlines()] == expected


def walk(way: Way, home: Path, chance: random.Random) -> Told:
    """The whole path in one way. Raises where something is not as it should be."""
    with serve(answer_letter) as llm:
        newcomer = Newcomer(home, way, llm)
        killed_after = chance.randint(5, 50)
        newcomer.start_and_kill(killed_after)
        newcomer.call(*way.proceed, code=1)
        told = check_morning(newcomer, killed_after)
        check_later(newcomer)
    return told


def check_morning(newcomer: Newcomer, killed_after: int) -> Told:
    """All results but one, and the reason for that one; at most what was in flight was paid twice."""
    good = [letter for letter in LETTERS if letter != POISON]
    newcomer.check_results(good, "results.partial.jsonl")
    found = newcomer.call("agentrun", "failures", "letters", "--json").stdout
    failures = [json.loads(line) for line in found.splitlines()]
    assert [one["key"] for one in failures] == [f"items/{POISON}.txt"], failures
    reasons = newcomer.call("agentrun", "failures", "letters").stdout
    assert "The document cannot be read." in reasons and f"items/{POISON}.txt" in reasons, reasons
    paid, concurrency = newcomer.paid(), newcomer.way.concurrency
    twice = [letter for letter, times in paid.items() if times > 1]
    assert sorted(paid) == good and max(paid.values()) <= 2 and len(twice) <= concurrency, paid
    troubled = {letter for letter in MARKS if letter != POISON}
    assert all(newcomer.llm.requests_of()[letter] > 1 for letter in troubled), "the model had no bad moments"
    return Told(newcomer.way.name, killed_after, len(good), len(failures), len(twice), concurrency)


def check_later(newcomer: Newcomer) -> None:
    """From now on only the failed letter is asked about, until it is fixed; then nothing is."""
    way, llm = newcomer.way, newcomer.llm
    asked, paid = len(llm.asked), newcomer.paid()
    newcomer.call(*way.proceed, code=1)
    assert newcomer.asked_since(asked) == {POISON} and newcomer.paid() == paid
    newcomer.write(POISON)
    asked = len(llm.asked)
    newcomer.call(*way.start)
    assert newcomer.asked_since(asked) == {POISON} and newcomer.paid() == paid + Counter([POISON])
    newcomer.check_results(LETTERS, "results.jsonl")
    assert not (newcomer.folder / "results.partial.jsonl").exists()
    asked = len(llm.asked)
    newcomer.call(*way.start)
    newcomer.call(*RESUME, "letters")
    assert newcomer.asked_since(asked) == set()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="newcomer.path", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}; all, without any")
    parser.add_argument("--seed", type=int, help="of the moments at which they are killed")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(10**6)
    for name in given.ways or WAYS:
        with tempfile.TemporaryDirectory(prefix="agentrun-newcomer-") as home, seeded(seed) as chance:
            print(walk(WAYS[name], Path(home), chance), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
