"""kill -9 of runners whose agent has five steps and one question an item, while a person answers: a program of its own,
because only a process without threads may fork.

    python -m crash.steps --kind loop --kills 300 --seed 1

prints what was found as JSON, and exits 1 where a finished step was called again, an answer lost, a question asked
twice, or a result is not that of an undisturbed run.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from agentrun.people.messages import answer_message, post, posted, run_of
from agentrun.views.listing import open_listing
from crash.command_line import apart
from crash.disks import CALLS, Call, FaultyDisk
from crash.forked import NOTE, Fault, Place, wait_or_end
from crash.workload import NAME, scratch

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
EXITS = (0, 3)
"""Of a launch that nobody kills: complete, or nothing left but to wait."""

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
class Tally:
    kills: int = 0
    runs: int = 0
    """Completed, in however many launches."""
    survived: int = 0
    """Launches that came to their end before the kill."""
    answers: int = 0
    at_work: int = 0
    """Of these, posted while a runner worked."""
    remembered: int = 0
    """How often the result of a finished step was given to a later attempt."""
    faults: list[str] = field(default_factory=list)


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
        with open_listing(self.place.folder) as listing:
            for view in listing.items({"waiting"}):
                assert view.question is not None
                question = (view.key, view.gen, view.question["n"])
                if question not in self.answered and chance.random() < share:
                    yes, text = self.reply.to(view.key)
                    message = answer_message(view, run_of(listing, NAME), yes=yes, text=text, by="person")
                    self.answered[question] = message["id"]
                    messages.append(message)
        post(self.place.folder, messages)
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
        kinds = Counter((record["kind"], record["key"]) for record in records)
        again = [f"{kind} of {key}" for (kind, key), count in kinds.items() if kind != "step" and count > 1]
        if again:
            raise Fault(f"on record twice: {', '.join(again)}")
        strange = [record for record in records if record["kind"] in ("failed", "skipped", "redo") or record["gen"]]
        if strange:
            raise Fault(f"nothing fails here, and nothing is begun anew: {strange[0]}")
        self.done |= {record["key"] for record in records if record["kind"] == "done"}
        steps = Counter((one["key"], one["name"], one["n"]) for one in records if one["kind"] == "step")
        if steps and max(steps.values()) > 1:
            raise Fault(f"a step is on record twice: {steps.most_common(1)}")
        # Those of items that are done are no longer needed.
        if lost := {step for step in self.steps - steps.keys() if step[0] not in self.done}:
            raise Fault(f"finished steps are lost: {sorted(lost)}")
        self.steps |= steps.keys()
        self._check_questions(records)

    def _check_questions(self, records: list[dict[str, Any]]) -> None:
        taken = {record["key"]: record["id"] for record in records if record["kind"] == "answer"}
        for record in records:
            if record["kind"] == "waiting" and record["question"]["n"] != 1:
                raise Fault(f"{record['key']} asked again: {record['question']}")
        wrong = {key for key, posted_id in taken.items() if self.answered.get((key, 0, 1)) != posted_id}
        if wrong:
            raise Fault(f"answers that nobody gave: {sorted(wrong)}")
        in_inbox = {message["key"] for message in posted(self.place.folder)}
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


def kill_at_random(kind: Kind, kills: int, seed: int, seconds: float = 0.0) -> dict[str, Any]:
    """Kill runners of `kind` until there were so many kills (or so many `seconds` are over), and complete what was
    begun; what was found."""
    chance, tally, began = random.Random(f"{kind} {seed}"), Tally(), time.monotonic()

    def goes_on() -> bool:
        return tally.kills < kills and not (seconds and time.monotonic() > began + seconds)

    with scratch() as path:
        place = make_place(path / "run", kind, ITEMS[kind])
        try:
            _run_undisturbed(place, ITEMS[kind])
            gc.collect()
            gc.freeze()
            while goes_on():
                place.clear()
                if kind in ("loop", "thread"):
                    # Alone, a launch commits without a thread of its own.
                    place.job = replace(place.job, concurrency=chance.choice((1, CONCURRENCY, CONCURRENCY)))
                watch = Watch(place, ITEMS[kind], Reply(tally.runs))
                _kill_a_run(watch, kind, chance, tally, goes_on)
        except Exception as error:
            tally.faults.append(f"after {tally.kills} kills ({kind}, seed {seed}): {type(error).__name__}: {error}")
    return {**asdict(tally), "seconds": round(time.monotonic() - began, 1)}


FEW, DIED = 2, 9


def die_at_each_call() -> dict[str, Any]:
    """Not at random: the process ends at the n-th call to the disk of each kind, for every n, right before it, and
    after it where that shows; in a launch that begins a run, and in one that takes in answers."""
    tally = Tally()
    with scratch() as path:
        place, saved = make_place(path / "run", "loop", FEW), path / "saved"
        _run_undisturbed(place, FEW)
        gc.collect()
        gc.freeze()
        moments = [(call, False) for call in CALLS] + [(call, True) for call in CALLS if call in ("replace", "unlink")]
        try:
            place.clear()
            begun = Watch(place, FEW, Reply(1))
            for call, after in moments:
                _die_at_each(begun, None, tally, call, after)
            place.clear()
            if place.end(place.start()) != 3:
                raise Fault("nothing waits")
            answered = Watch(place, FEW, Reply(2))
            answered.answer(random.Random(0), 1.0)
            answered.check()
            shutil.copytree(place.base, saved)
            for call, after in moments:
                _die_at_each(answered, saved, tally, call, after)
        except Exception as error:
            tally.faults.append(f"after {tally.kills} deaths: {type(error).__name__}: {error}")
    return asdict(tally)


def _die_at_each(start: Watch, saved: Path | None, tally: Tally, call: Call, after: bool) -> None:
    place = start.place
    for n in count(1):
        place.clear()
        if saved is not None:
            shutil.copytree(saved, place.base, dirs_exist_ok=True)
        watch = start.copy()
        ended = place.end(place.start(disk=FaultyDisk(call, n, lambda: os._exit(DIED), after=after)))
        if ended in EXITS:
            return
        tally.kills += 1
        try:
            if ended != DIED:
                raise Fault(f"it ended with {ended}")
            watch.check()
            while not place.is_complete:
                if place.end(place.start()) not in EXITS:
                    raise Fault("the next launch did not come to its end")
                watch.check()
                tally.answers += watch.answer(random.Random(n), 1.0) if place.is_begun else 0
        except Fault as fault:
            raise Fault(f"death at {call} number {n}{' when it was done' if after else ''}: {fault}") from None
        tally.runs += 1
        tally.remembered += watch.remembered


def _run_undisturbed(place: Place, total: int) -> None:
    """Once without a fork, so that a child need not import anything; and to see that it is as we expect."""
    watch = Watch(place, total, Reply(999))
    assert place.launch()["exit_code"] == 3
    assert watch.answer(random.Random(0), 1.0) == total
    assert place.launch(compacts=True)["exit_code"] == 0
    watch.check()
    assert place.is_complete
    expected = Counter(f"{what} {key_of(n)} {number}" for n in range(total) for what, number in _notes())
    assert Counter(place.notes()) == expected


def _notes() -> list[tuple[str, int]]:
    """What an undisturbed run of two launches notes of each item."""
    every = list(range(len(STEPS)))
    return [("call", n) for n in every] + [("done", n) for n in every] + [("done", n) for n in every[:ASK_AFTER]]


def _kill_a_run(watch: Watch, kind: Kind, chance: random.Random, tally: Tally, goes_on: Callable[[], bool]) -> None:
    place = watch.place
    while not place.is_complete:
        if place.is_begun and chance.random() < 0.6:
            tally.answers += watch.answer(chance, 0.6)
        before = len(place.notes())
        pid = place.start(compacts=chance.random() < 0.3)
        if goes_on():
            if _wait_for_a_moment(place, kind, pid, before, chance) and chance.random() < 0.3:
                found = watch.answer(chance, 0.8)
                tally.answers, tally.at_work = tally.answers + found, tally.at_work + found
                time.sleep(chance.uniform(0.0, LATER_SECONDS[kind]))
            os.kill(pid, signal.SIGKILL)
        ended = place.end(pid)
        if ended == -signal.SIGKILL:
            tally.kills += 1
        elif ended in EXITS:
            tally.survived += 1
        else:
            raise Fault(f"a launch ended with {ended}")
        watch.check()
    tally.runs += 1
    tally.remembered += watch.remembered


def _wait_for_a_moment(place: Place, kind: Kind, pid: int, before: int, chance: random.Random) -> bool:
    """While it starts, or some steps on; whether the launch is at work and alive."""
    if chance.random() < 0.25:
        time.sleep(chance.uniform(0.0, STARTUP_SECONDS[kind]))
        return False
    calls = chance.randint(1, MOST_CALLS[kind])

    def has_called() -> bool:
        return sum(note.startswith("call") for note in place.notes()[before:]) >= calls

    is_at_work = wait_or_end(pid, has_called, "the next step")
    time.sleep(chance.uniform(0.0, LATER_SECONDS[kind]) if is_at_work else 0.0)
    return is_at_work


def kill_apart(kind: Kind, kills: int, seed: int, seconds: float = 0.0) -> dict[str, Any]:
    """The same, in a process of its own."""
    limit = seconds + 600.0
    found: dict[str, Any] = apart("crash.steps", "kill_at_random", kind, kills, seed, seconds, timeout_seconds=limit)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="crash.steps", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="loop")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long, however many kills")
    asked = parser.parse_args()
    found = kill_at_random(asked.kind, asked.kills, asked.seed, asked.seconds)
    print(json.dumps(found))
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
