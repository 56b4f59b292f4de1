"""Answers posted while a runner works and while none does, with kills in between; and items that are begun anew."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson

from agentrun.people.messages import Message, answer_message, post, posted, redo_message, run_of
from agentrun.views.listing import open_listing
from crash.forked import NOTE, Fault, Place, wait_or_end
from crash.workload import NAME, scratch

ROUNDS, EACH = 10, 5
"""In each round so many answers while a runner works, and as many when it was killed."""
CONCURRENCY = 8
INBOX_SECONDS = 1.1
"""A runner at work looks into its inbox within about this time."""
BUSY = "busy"

AGENT = f"""{NOTE}
async def agent(item, ctx):
    if item.key == {BUSY!r}:
        # For as long as it lives, the launch is at work.
        note("busy")
        while not (Path(__file__).parent / "release").exists():
            await asyncio.sleep(0.005)
        return "released"
    answer = await ctx.ask(f"What of {{item.key}}?")
    return {{"text": answer.text, "yes": bool(answer)}}
"""


@dataclass(slots=True)
class Person:
    """Answers each question; some of them twice, in other words, some by the same message again, and some after an
    answer to another question."""

    place: Place
    chance: random.Random
    said: dict[str, Message] = field(default_factory=dict)
    """By key: the first answer."""
    afterwards: list[Message] = field(default_factory=list)
    """What is posted again later."""
    duplicates: int = 0

    def answer(self, keys: list[str]) -> None:
        chance, messages, again = self.chance, list(self.afterwards), []
        with open_listing(self.place.folder) as listing:
            for key in keys:
                view = listing.find(key=key)
                if view is None or view.question is None:
                    raise Fault(f"{key} does not wait: {view}")
                run_id = run_of(listing, NAME)
                yes = chance.random() < 0.5
                first = answer_message(view, run_id, yes=yes, text=f"first words about {key}", by="person")
                other = answer_message(view, run_id, yes=not yes, text=f"other words about {key}", by="another")
                self.said[key] = first
                if chance.random() < 0.3:
                    # About a question that the item has not asked, or of another generation.
                    messages.append(chance.choice(({**other, "question": 2}, {**other, "gen": 1})))
                messages.append(first)
                if chance.random() < 0.4:
                    messages.append(other)
                if chance.random() < 0.4:
                    again.append(chance.choice((first, other)))
        self.duplicates += len(messages) - len(keys)
        self.afterwards = again
        post(self.place.folder, messages)

    def check(self) -> None:
        """Each answer was taken in once, or lies in the inbox; when no runner is alive."""
        taken = [record for record in self.place.records() if record["kind"] == "answer"]
        twice = [key for key, count in Counter(record["key"] for record in taken).items() if count > 1]
        if twice:
            raise Fault(f"taken in twice: {twice}")
        others = [record for record in taken if record["id"] != self.said[record["key"]]["id"]]
        if others:
            raise Fault(f"not the first answer: {others[0]}")
        there = {record["id"] for record in taken} | {message["id"] for message in posted(self.place.folder)}
        if lost := [key for key, message in self.said.items() if message["id"] not in there]:
            raise Fault(f"lost: {lost}")


def post_and_kill(seed: int) -> dict[str, Any]:
    """50 answers while a runner works and 50 while none does; what was found when the run was complete."""
    chance = random.Random(f"answers {seed}")
    keys = [f"item-{n:03}" for n in range(2 * ROUNDS * EACH)]
    order = chance.sample(keys, len(keys))
    kills = taken_at_work = 0
    with scratch() as path:
        # Once without a fork, so that a child need not import anything.
        assert Place(path / "first", ["item"], AGENT).launch()["exit_code"] == 3
        place = Place(path / "run", [BUSY, *keys], AGENT, concurrency=CONCURRENCY)
        person = Person(place, chance)
        for number in range(ROUNDS):
            at_work, at_rest = order[2 * number * EACH :][:EACH], order[(2 * number + 1) * EACH :][:EACH]
            notes = len(place.notes())
            pid = place.start()
            if not wait_or_end(pid, lambda notes=notes: len(place.notes()) > notes, "work"):  # type: ignore[misc]
                raise Fault(f"the launch ended with {place.end(pid)}")
            if not number:
                wait_or_end(pid, lambda: _count_waiting(place) == len(keys), "all items wait")
            person.answer(at_work)
            if number % 2:
                wait_or_end(pid, lambda keys=at_work: _are_taken(place, keys), "answers are taken in")  # type: ignore[misc]
                taken_at_work += EACH
                time.sleep(chance.uniform(0.0, 0.002))
            else:
                time.sleep(chance.uniform(0.0, INBOX_SECONDS))
            os.kill(pid, signal.SIGKILL)
            if place.end(pid) != -signal.SIGKILL:
                raise Fault("a launch with an item at work has ended")
            kills += 1
            person.check()
            person.answer(at_rest)
            person.check()
        (place.base / "release").touch()
        ended = place.end(place.start())
        if ended != 0:
            raise Fault(f"the last launch ended with {ended}")
        person.check()
        taken = Counter(record["id"] for record in place.records() if record["kind"] == "answer")
        return {
            "kills": kills,
            "answers": len(person.said),
            "duplicates": person.duplicates,
            "taken_at_work": taken_at_work,
            "taken": [taken[message["id"]] for message in person.said.values()],
            "records": taken.total(),
            "left": len(posted(place.folder)),
            "results": _are_right(place, person, keys),
        }


def _count_waiting(place: Place) -> int:
    if not place.is_begun:
        return 0
    with open_listing(place.folder) as listing:
        return listing.counts["waiting"]


def _are_taken(place: Place, keys: list[str]) -> bool:
    with open_listing(place.folder) as listing:
        return not any(view.key in keys for view in listing.items({"waiting"}))


def _are_right(place: Place, person: Person, keys: list[str]) -> bool:
    """The results are those of the first answers."""
    outputs: list[Any] = ["released"]
    for key in keys:
        answer = person.said[key]["answer"]
        outputs.append({"text": answer["text"], "yes": answer["yes"]})
    lines = zip([BUSY, *keys], outputs, strict=True)
    expected = [{"index": n, "key": key, "output": output} for n, (key, output) in enumerate(lines)]
    return place.output.read_bytes() == b"".join(orjson.dumps(line) + b"\n" for line in expected)


ANEW = f"""{NOTE}
async def agent(item, ctx):
    if item.key == "waits":
        return (await ctx.ask("Go on?")).text
    note(item.key)
    while (Path(__file__).parent / "hold").exists():
        await asyncio.sleep(0.005)
    times = (Path(__file__).parent / "notes.log").read_text().split().count(item.key)
    await ctx.step("large", lambda: "x" * 5000)
    return times
"""


def redo_and_compact() -> dict[str, Any]:
    """Items are begun anew; one launch is killed in them, and another when it has compacted the journal."""
    keys = [f"item-{n}" for n in range(4)]
    with scratch() as path:
        place = Place(path / "run", ["waits", *keys], ANEW, concurrency=len(keys))
        assert place.launch()["exit_code"] == 3
        with open_listing(place.folder) as listing:
            views = list(listing.items({"done"}))
            post(place.folder, [redo_message(view, run_of(listing, NAME), by="person") for view in views])
        (place.base / "hold").touch()
        sizes = []
        for compacts in (False, True):
            begun = len(place.notes()) + len(keys)
            pid = place.start(compacts=compacts)
            if not wait_or_end(pid, lambda begun=begun: len(place.notes()) >= begun, "work"):  # type: ignore[misc]
                # With nothing to do it ends by itself.
                raise Fault(f"nothing was begun anew: {place.end(pid)}")
            os.kill(pid, signal.SIGKILL)
            place.end(pid)
            sizes.append(sum(file.stat().st_size for file in place.folder.glob("journal-*.jsonl")))
        (place.base / "hold").unlink()
        ended = place.launch()["exit_code"]
        outputs = {record["key"]: record["output"] for record in place.records() if record["kind"] == "done"}
        return {"ended": ended, "sizes": sizes, "outputs": [outputs[key] for key in keys]}
