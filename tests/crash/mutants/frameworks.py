"""Bugs in what an item remembers for a framework."""

from __future__ import annotations

from crash.seeding import Mutant

MEMORY = "tests/unit/launch/test_memory.py"
OFFLOADING = "tests/unit/executors/test_offloading.py"
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
        "a retry begins while the disk is writing what the attempt before it has done",
        "Attempts.settle",
        "await self._commit()",
        "pass",
        (
            "tests/unit/launch/test_cut_off.py::"
            "test_a_retry_begins_when_the_step_of_the_last_attempt_is_on_disk_and_recalls_it",
        ),
    ),
    Mutant(
        "a timed out attempt is over while a function of it is running in a thread",
        "LoopExecutor._end_of",
        "await all_ended(end.calls)",
        "pass",
        (f"{OFFLOADING}::test_after_a_timeout_the_attempt_is_over_when_its_thread_is",),
    ),
    Mutant(
        "a failed attempt is over while a function of it is running in a thread",
        "LoopExecutor._attempt",
        "await _wait_for_threads(end)",
        "pass",
        (
            f"{OFFLOADING}::test_an_attempt_that_may_be_followed_by_another_waits_for_its_threads",
            "tests/unit/frameworks/test_threads.py",
        ),
    ),
    Mutant(
        "an attempt that the agent cancels once more is over while a function of it is running in a thread",
        "_wait_for_threads",
        "with suppress(asyncio.CancelledError):\n    await all_ended(end.calls)",
        "with suppress(asyncio.CancelledError):\n    await all_ended(end.calls)\nreturn",
        (f"{OFFLOADING}::test_an_attempt_that_cancels_itself_again_and_again_still_waits_for_its_threads",),
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
