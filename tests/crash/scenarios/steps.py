"""An agent with five steps and one question an item, while a person answers: no finished step is called again, no
answer lost, no question asked twice, and the results are those of an undisturbed run."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from agentrun.checkpoint.record import Question, Record
from agentrun.people.messages import answer_message
from agentrun.store.folder.store import FolderStore
from agentrun.system.disk import Disk
from agentrun.views.listing import open_listing
from crash.disks import CALLS
from crash.forked import NOTE, Place
from crash.harness import DyingScenario, Fault, Launched, freeze
from crash.workload import scratch

Kind = Literal["loop", "thread", "process", "bash"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STEPS = ("search", "read", "draft", "check", "read")
"""One name twice: they are told apart by their occurrence."""
ASK_AFTER = 3
ITEMS = {"loop": 6, "thread": 6, "process": 6, "bash": 4}
CONCURRENCY = 3
STARTUP_SECONDS = {"loop": 0.01, "thread": 0.01, "process": 0.4, "bash": 0.2}
"""How long a launch takes to its first step, about."""
MOST_CALLS = {"loop": 5, "thread": 5, "process": 5, "bash": 3}
"""How many steps a launch that is to be killed at work may call before that."""
LATER_SECONDS = {"loop": 0.003, "thread": 0.003, "process": 0.01, "bash": 0.1}
"""How much later it may be killed: about as long as it takes from one step to the next."""

# `call` before a step's work, `done` once it has returned, which it may do only when it is on disk.
_PYTHON = f"""{NOTE}
STEPS, ASK_AFTER = {STEPS!r}, {ASK_AFTER}

def made(key, number):
    return f"{{key}}/{{number}}/{{STEPS[number]}}"

def finish(results, answer):
    return {{"steps": results, "yes": bool(answer), "answer": answer.text}}
"""
SYNC_AGENT = f"""{_PYTHON}
def work(key, number):
    note("call", key, number)
    time.sleep(0.001)
    return made(key, number)

def step(item, ctx, number):
    result = ctx.step(STEPS[number], work, item.key, number)
    note("done", item.key, number)
    return result

def agent(item, ctx):
    results = [step(item, ctx, number) for number in range(ASK_AFTER)]
    answer = ctx.ask(f"Send {{item.key}}?", draft=results[-1])
    return finish(results + [step(item, ctx, number) for number in range(ASK_AFTER, len(STEPS))], answer)
"""
ASYNC_AGENT = f"""{_PYTHON}
async def work(key, number):
    note("call", key, number)
    await asyncio.sleep(0.001)
    return made(key, number)

async def step(item, ctx, number):
    result = await ctx.step(STEPS[number], work, item.key, number)
    note("done", item.key, number)
    return result

async def agent(item, ctx):
    results = [await step(item, ctx, number) for number in range(ASK_AFTER)]
    answer = await ctx.ask(f"Send {{item.key}}?", draft=results[-1])
    return finish(results + [await step(item, ctx, number) for number in range(ASK_AFTER, len(STEPS))], answer)
"""
BASH_AGENT = f"""#!/bin/bash
key=$1 number=0 results=
step() {{
    local result work='echo "call $1 $2" >>notes.log; printf %s "$1/$2/$3"'
    result=$(agentrun step "$1" -- sh -c "$work" - "$key" $number "$1") || exit
    echo "done $key $number" >>notes.log
    results="$results${{results:+, }}\\"$result\\""
    number=$((number + 1))
}}
for name in {" ".join(STEPS[:ASK_AFTER])}; do step $name; done
if answer=$(agentrun ask "Send $key?" --detail draft="$results"); then yes=true; else
    code=$?
    [ $code = 1 ] || exit $code
    yes=false
fi
for name in {" ".join(STEPS[ASK_AFTER:])}; do step $name; done
text=$(sed 's/.*"text":"\\([^"]*\\)".*/\\1/' <<<"$answer")
echo "{{\\"steps\\": [$results], \\"yes\\": $yes, \\"answer\\": \\"$text\\"}}"
"""


def key_of(index: int) -> str:
    return f"item-{index}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the person says: the same to the same question, and to no other."""

    run: int

    def to(self, key: str) -> tuple[bool, str]:
        return int(key[-1]) % 2 == 0, f"words {self.run} about {key}"


def make_place(base: Path, kind: Kind, total: int) -> Place:
    keys = [key_of(n) for n in range(total)]
    if kind == "bash":
        return Place(base, keys, BASH_AGENT, concurrency=CONCURRENCY, command=("./agent.sh", "{}"), parse="json")
    if kind == "loop":
        return Place(base, keys, ASYNC_AGENT, concurrency=CONCURRENCY)
    return Place(base, keys, SYNC_AGENT, concurrency=CONCURRENCY, isolation=kind)


def results_of(total: int, reply: Reply) -> bytes:
    """What an undisturbed run writes, without any of the code under test."""
    lines = []
    for index in range(total):
        key = key_of(index)
        yes, text = reply.to(key)
        steps = [f"{key}/{number}/{name}" for number, name in enumerate(STEPS)]
        lines.append({"index": index, "key": key, "output": {"steps": steps, "yes": yes, "answer": text}})
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


@dataclass(slots=True)
class Watch:
    """One run, from outside: what was promised so far, and the person who answers."""

    place: Place
    total: int
    reply: Reply
    answered: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """By key, generation and question: the id of the message."""
    steps: set[tuple[str, str, int]] = field(default_factory=set)
    """By key, name and occurrence: those that were on disk when a launch had died."""
    finished: set[tuple[str, str]] = field(default_factory=set)
    """By key and number: the same, as the agent's log has them."""
    called_until: int = 0
    """How much of the agent's log was looked at."""
    taken: set[str] = field(default_factory=set)
    """Items whose answer was on disk."""
    done: set[str] = field(default_factory=set)
    remembered: int = 0
    """How often an attempt was given the result of a step that was finished before."""

    def copy(self) -> Watch:
        """As it stands now, to go on from more than once."""
        return replace(
            self,
            answered=dict(self.answered),
            steps=set(self.steps),
            finished=set(self.finished),
            taken=set(self.taken),
            done=set(self.done),
        )

    def answer(self, chance: random.Random, share: float) -> int:
        """Answer some of the questions that wait, each once; how many."""
        messages = []
        store = FolderStore(self.place.folder)
        with open_listing(store) as listing:
            for view in listing.items({"waiting"}):
                assert view.question is not None
                question = (view.key, view.gen, view.question.n)
                if question not in self.answered and chance.random() < share:
                    yes, text = self.reply.to(view.key)
                    message = answer_message(view, listing.reader.run_id, yes=yes, text=text, by="person")
                    self.answered[question] = message.id
                    messages.append(message)
        store.post(messages)
        return len(messages)

    def check(self) -> None:
        """What is on disk and in the agent's log, when no runner is alive."""
        self._check_records()
        self._check_calls()
        if self.place.is_complete:
            found = self.place.output.read_bytes()
            if found != results_of(self.total, self.reply):
                raise Fault(f"the results are not those of an undisturbed run: {found!r}")

    def _check_records(self) -> None:
        records = self.place.records()
        kinds = Counter((record.kind, record.key) for record in records)
        again = [f"{kind} of {key}" for (kind, key), count in kinds.items() if kind != "step" and count > 1]
        if again:
            raise Fault(f"on record twice: {', '.join(again)}")
        strange = [record for record in records if record.kind in ("failed", "skipped", "redo") or record.gen]
        if strange:
            raise Fault(f"nothing fails here, and nothing is begun anew: {strange[0]}")
        self.done |= {record.key for record in records if record.kind == "done"}
        steps = Counter((one.key, one.name, one.n) for one in records if one.kind == "step")
        if steps and max(steps.values()) > 1:
            raise Fault(f"a step is on record twice: {steps.most_common(1)}")
        # Those of items that are done are no longer needed.
        if lost := {step for step in self.steps - steps.keys() if step[0] not in self.done}:
            raise Fault(f"finished steps are lost: {sorted(lost)}")
        self.steps |= steps.keys()
        self._check_questions(records)

    def _check_questions(self, records: list[Record]) -> None:
        taken = {record.key: record.id for record in records if record.kind == "answer"}
        for record in records:
            if isinstance(record.question, Question) and record.question.n != 1:
                raise Fault(f"{record.key} asked again: {record.question}")
        wrong = {key for key, posted_id in taken.items() if self.answered.get((key, 0, 1)) != posted_id}
        if wrong:
            raise Fault(f"answers that nobody gave: {sorted(wrong)}")
        in_inbox = {one.message.key for one in FolderStore(self.place.folder).inbox() if one.message is not None}
        kept = taken.keys() | in_inbox | self.done
        if lost := {key for key, _, _ in self.answered} - kept:
            raise Fault(f"answers are lost, or their questions asked again: {sorted(lost)}")
        if lost := self.taken - taken.keys() - self.done:
            raise Fault(f"answers that were on disk are lost: {sorted(lost)}")
        self.taken |= taken.keys()

    def _check_calls(self) -> None:
        """No step is called that was finished before: by the agent's own log, and by what was on disk."""
        lines = self.place.notes()
        for line in lines[self.called_until :]:
            what, key, number = line.split()
            if what == "done":
                self.remembered += (key, number) in self.finished
                self.finished.add((key, number))
            elif (key, number) in self.finished:
                raise Fault(f"step {number} of {key} was finished, and was called again")
        self.called_until = len(lines)
        occurrences: Counter[str] = Counter()
        for position, name in enumerate(STEPS):
            keys = {key for key, *step in self.steps if step == [name, occurrences[name]]} | self.done
            self.finished |= {(key, str(position)) for key in keys}
            occurrences[name] += 1


class Steps(DyingScenario):
    # Complete, or nothing left but to wait.
    exits = ends = (0, 3)
    moments = (
        *((call, False) for call in CALLS),
        # Where it shows.
        ("replace", True),
        ("unlink", True),
    )

    def __init__(self, kind: Kind, total: int) -> None:
        self._closing = ExitStack()
        self._base = self._closing.enter_context(scratch())
        self._kind, self._total = kind, total
        self._place = make_place(self._base / "run", kind, total)
        self._watch = self._new_watch(999)
        self._runs = 0
        self._starts: dict[str, tuple[Watch, Path | None]] = {}
        self._answers = 0
        self._at_work = 0
        """Of these, posted while a runner worked."""
        self._remembered = 0
        """How often the result of a finished step was given to a later attempt."""

    @property
    def is_complete(self) -> bool:
        return self._place.is_complete

    def warm_up(self) -> None:
        place, watch = self._place, self._watch
        ended = [place.launch().exit_code]
        answered = watch.answer(random.Random(0), 1.0)
        ended.append(place.launch(compacts=True).exit_code)
        watch.check()
        expected = Counter(f"{what} {key_of(n)} {number}" for n in range(self._total) for what, number in _notes())
        if ended != [3, 0] or answered != self._total or Counter(place.notes()) != expected:
            raise Fault(f"an undisturbed run is not as expected: {ended}, {answered} answers, {place.notes()}")
        freeze()

    def close(self) -> None:
        self._closing.close()

    def report(self) -> dict[str, Any]:
        return {"answers": self._answers, "at_work": self._at_work, "remembered": self._remembered}

    def begin(self, chance: random.Random) -> None:
        self._place.clear()
        if self._kind in ("loop", "thread"):
            # Alone, a launch commits without a thread of its own.
            concurrency = chance.choice((1, CONCURRENCY, CONCURRENCY))
            self._place.job = replace(self._place.job, concurrency=concurrency)
        self._watch = self._new_watch(self._runs)
        self._runs += 1

    def between(self, chance: random.Random) -> None:
        if self._place.is_begun and chance.random() < 0.6:
            self._answers += self._watch.answer(chance, 0.6)
        self._noted = len(self._place.notes())

    def start(self, chance: random.Random) -> Launched:
        return self._place.start(compacts=chance.random() < 0.3)

    def wait_for_a_moment(self, launched: Launched, chance: random.Random) -> None:
        """While it starts, or some steps on, or some answers later."""
        if chance.random() < 0.25:
            time.sleep(chance.uniform(0.0, STARTUP_SECONDS[self._kind]))
            return
        calls = chance.randint(1, MOST_CALLS[self._kind])

        def has_called() -> bool:
            return sum(note.startswith("call") for note in self._place.notes()[self._noted :]) >= calls

        if not launched.reaches(has_called, "the next step"):
            return
        time.sleep(chance.uniform(0.0, LATER_SECONDS[self._kind]))
        if chance.random() < 0.3:
            found = self._watch.answer(chance, 0.8)
            self._answers, self._at_work = self._answers + found, self._at_work + found
            time.sleep(chance.uniform(0.0, LATER_SECONDS[self._kind]))

    def check(self, ended: int) -> None:
        self._watch.check()

    def check_complete(self) -> None:
        self._remembered += self._watch.remembered

    # ---- death at a call

    def starting_points(self) -> Iterator[str]:
        place = self._place
        self._starts["a first launch"] = self._new_watch(1), None
        yield "a first launch"
        place.clear()
        if place.start().wait() != 3:
            raise Fault("nothing waits")
        watch, saved = self._new_watch(2), self._base / "saved"
        watch.answer(random.Random(0), 1.0)
        watch.check()
        shutil.copytree(place.base, saved)
        self._starts["a launch that takes in answers"] = watch, saved
        yield "a launch that takes in answers"

    def go_to(self, point: str) -> None:
        watch, saved = self._starts[point]
        self._place.clear()
        if saved is not None:
            shutil.copytree(saved, self._place.base, dirs_exist_ok=True)
        self._watch = watch.copy()

    def start_on(self, disk: Disk | None) -> Launched:
        return self._place.start(disk=disk)

    def answer_all(self) -> None:
        if self._place.is_begun:
            self._answers += self._watch.answer(random.Random(0), 1.0)

    def _new_watch(self, run: int) -> Watch:
        return Watch(self._place, self._total, Reply(run))


def _notes() -> list[tuple[str, int]]:
    """What an undisturbed run of two launches notes of each item."""
    every = list(range(len(STEPS)))
    return [("call", n) for n in every] + [("done", n) for n in every] + [("done", n) for n in every[:ASK_AFTER]]


def make(*, kind: Kind = "loop", total: int | None = None) -> Steps:
    return Steps(kind, total or ITEMS[kind])
