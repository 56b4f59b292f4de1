"""Bugs in what an item remembers for a framework."""

from __future__ import annotations

from crash.seeding import Mutant

MEMORY = "tests/unit/launch/test_memory.py"
LANGGRAPH = "tests/unit/frameworks/test_langgraph.py"

MUTANTS = [
    Mutant(
        "the step of a framework is not on disk when its result is used",
        "ItemMemory.step",
        "expect(Reply, await end_of(self._ctx).call(put))",
        "pass",
        (f"{MEMORY}::test_steps_with_a_request_are_found_by_name_in_any_order_and_warn_of_nothing",),
    ),
    Mutant(
        "entries of a journal are numbered twice",
        "Recall.add",
        "self._added[name] += 1",
        "pass",
        (f"{MEMORY}::test_entries_are_a_prefix_in_order_wherever_the_launch_dies",),
    ),
    Mutant(
        "a question with a key gets another one's answer",
        "Recall.answer",
        "self.remembered.answers_by_key.get(key)",
        "next(iter(self.remembered.answers_by_key.values()), None)",
        (f"{MEMORY}::test_a_question_with_a_key_has_its_answer_whatever_its_words_and_place",),
    ),
    Mutant(
        "a task of a graph begins before what finished before it is on disk",
        "StartsWhenSaved.on_chain_start",
        "await self._saver.settle()",
        "pass",
        (f"{LANGGRAPH}::test_tasks_of_an_entrypoint_are_remembered",),
    ),
]
