"""Answers posted while a runner works and while none does, with a kill after each few: each is taken in once."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import orjson
from msgspec import structs

from agentrun.checkpoint.message import AnswerMessage
from agentrun.people.messages import answer_message
from agentrun.store.folder.store import FolderStore
from agentrun.views.listing import open_listing
from crash.forked import NOTE, Place
from crash.harness import Fault, Launched, Scenario, freeze
from crash.workload import scratch

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
    said: dict[str, AnswerMessage] = field(default_factory=dict)
    """By key: the first answer."""
    afterwards: list[AnswerMessage] = field(default_factory=list)
    """What is posted again later."""
    duplicates: int = 0

    def answer(self, keys: list[str]) -> None:
        chance, messages, again = self.chance, list(self.afterwards), []
        store = FolderStore(self.place.folder)
        with open_listing(store) as listing:
            for key in keys:
                view = listing.find(key=key)
                if view is None or view.question is None:
                    raise Fault(f"{key} does not wait: {view}")
                run_id = listing.reader.run_id
                yes = chance.random() < 0.5
                first = answer_message(view, run_id, yes=yes, text=f"first words about {key}", by="person")
                other = answer_message(view, run_id, yes=not yes, text=f"other words about {key}", by="another")
                self.said[key] = first
                if chance.random() < 0.3:
                    # About a question that the item has not asked, or of another generation.
                    messages.append(chance.choice((structs.replace(other, question=2), structs.replace(other, gen=1))))
                messages.append(first)
                if chance.random() < 0.4:
                    messages.append(other)
                if chance.random() < 0.4:
                    again.append(chance.choice((first, other)))
        self.duplicates += len(messages) - len(keys)
        self.afterwards = again
        store.post(messages)

    def check(self) -> None:
        """Each answer was taken in once, or lies in the inbox; when no runner is alive."""
        taken = [record for record in self.place.records() if record.kind == "answer"]
        twice = [key for key, count in Counter(record.key for record in taken).items() if count > 1]
        if twice:
            raise Fault(f"taken in twice: {twice}")
        others = [record for record in taken if record.id != self.said[record.key].id]
        if others:
            raise Fault(f"not the first answer: {others[0]}")
        there = {record.id for record in taken} | _in_inbox(self.place)
        if lost := [key for key, message in self.said.items() if message.id not in there]:
            raise Fault(f"lost: {lost}")


class Answers(Scenario):
    # One item is at work for as long as it is killed.
    exits = ()

    def __init__(self) -> None:
        self._closing = ExitStack()
        self._base = self._closing.enter_context(scratch())
        self._keys = [f"item-{n:03}" for n in range(2 * ROUNDS * EACH)]
        self._round = self._rested = self._taken_at_work = 0
        self._report: dict[str, Any] = {}
        self._is_complete = False

    def warm_up(self) -> None:
        if Place(self._base / "first", ["item"], AGENT).launch().exit_code != 3:
            raise Fault("nothing waits")
        freeze()

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def close(self) -> None:
        self._closing.close()

    def begin(self, chance: random.Random) -> None:
        self._place = Place(self._base / "run", [BUSY, *self._keys], AGENT, concurrency=CONCURRENCY)
        self._person = Person(self._place, chance)
        self._order = chance.sample(self._keys, len(self._keys))

    def between(self, chance: random.Random) -> None:
        if self._rested < self._round:
            self._person.answer(self._order[(2 * self._rested + 1) * EACH :][:EACH])
            self._person.check()
            self._rested += 1
        self._noted = len(self._place.notes())

    def start(self, chance: random.Random) -> Launched:
        return self._place.start()

    def wait_for_a_moment(self, launched: Launched, chance: random.Random) -> None:
        place, at_work = self._place, self._order[2 * self._round * EACH :][:EACH]
        if not launched.reaches(lambda: len(place.notes()) > self._noted, "work"):
            raise Fault(f"the launch ended with {launched.wait()}")
        if not self._round:
            launched.reaches(lambda: _count_waiting(place) == len(self._keys), "all items wait")
        self._person.answer(at_work)
        if self._round % 2:
            launched.reaches(lambda: _are_taken(place, at_work), "answers are taken in")
            self._taken_at_work += EACH
            time.sleep(chance.uniform(0.0, 0.002))
        else:
            time.sleep(chance.uniform(0.0, INBOX_SECONDS))
        self._round += 1

    def let_end(self) -> None:
        (self._place.base / "release").touch()

    def check(self, ended: int) -> None:
        self._person.check()
        self._is_complete = ended == 0

    def report(self) -> dict[str, Any]:
        return self._report

    def check_complete(self) -> None:
        place, said = self._place, self._person.said
        taken = Counter(record.id for record in place.records() if record.kind == "answer")
        self._report = {
            "answers": len(said),
            "duplicates": self._person.duplicates,
            "taken_at_work": self._taken_at_work,
            "taken": [taken[message.id] for message in said.values()],
            "records": taken.total(),
            "left": len(_in_inbox(place)),
            "results": _are_right(place, self._person, self._keys),
        }


def _in_inbox(place: Place) -> set[str]:
    """The ids of the messages that no runner has processed yet."""
    return {one.message.id for one in FolderStore(place.folder).inbox() if one.message is not None}


def _count_waiting(place: Place) -> int:
    if not place.is_begun:
        return 0
    with open_listing(FolderStore(place.folder)) as listing:
        return listing.counts["waiting"]


def _are_taken(place: Place, keys: list[str]) -> bool:
    with open_listing(FolderStore(place.folder)) as listing:
        return not any(view.key in keys for view in listing.items({"waiting"}))


def _are_right(place: Place, person: Person, keys: list[str]) -> bool:
    """The results are those of the first answers."""
    outputs: list[Any] = ["released"]
    for key in keys:
        answer = person.said[key].answer
        outputs.append({"text": answer.text, "yes": answer.yes})
    lines = zip([BUSY, *keys], outputs, strict=True)
    expected = [{"index": n, "key": key, "output": output} for n, (key, output) in enumerate(lines)]
    return place.output.read_bytes() == b"".join(orjson.dumps(line) + b"\n" for line in expected)


def make() -> Answers:
    return Answers()
