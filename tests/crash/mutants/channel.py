"""Bugs in what tells one attempt's messages from another's."""

from __future__ import annotations

from crash.seeding import Mutant

_MESSAGES = "tests/crash/test_messages.py::test_every_result_is_its_own_items_whatever_becomes_of_messages"


def _faults(boundary: str, kind: str) -> str:
    return f"{_MESSAGES}[{boundary}-{kind}]"


FORKS = "tests/unit/executors/test_forks.py"
FROZEN = "tests/unit/system/test_deadlines.py"
FROZEN_RUNNER = "tests/identity/test_frozen_runner.py"
REPLIES = "tests/unit/executors/programs/test_runner_connection.py"
SERVE = "tests/unit/executors/programs/test_serve.py"
STRAY = "tests/unit/executors/test_stray.py::test_an_outcome_of_another_attempt_ends_the_worker_and_the_attempt_is_lost"

MUTANTS: list[Mutant] = [
    Mutant(
        "an outcome of another attempt taken from a worker",
        "WorkerExecutor._outcome",
        """
if frame.get("id") != attempt_id:
    raise StrayMessage(...)
""",
        "",
        (STRAY, _faults("worker", "swapped"), _faults("worker", "over")),
    ),
    Mutant(
        "a worker's message taken twice",
        "RunnerEnd.answer",
        "message.no != self._heard + 1 or message.id != self._attempt.id",
        "message.id != self._attempt.id",
        (_faults("worker", "doubled"),),
    ),
    Mutant(
        "a thread's message taken twice",
        "RunnerEnd.answer",
        "message.no != self._heard + 1 or message.id != self._attempt.id",
        "message.id != self._attempt.id",
        (_faults("thread", "doubled"),),
    ),
    Mutant(
        "a message of another attempt taken from a thread",
        "RunnerEnd.answer",
        "message.no != self._heard + 1 or message.id != self._attempt.id",
        "False",
        (_faults("thread", "swapped"), _faults("thread", "over")),
    ),
    Mutant(
        "a message of a thread that comes when its attempt is over taken",
        "RunnerEnd.answer",
        """
if not self.is_open:
    return Refused(...)
""",
        "",
        (_faults("thread", "delayed"),),
    ),
    Mutant(
        "a stray message refused, and the attempt goes on",
        "RunnerEnd._refuse_stray",
        "self.failure = self.failure or Failure('lost', why)",
        "",
        ("tests/unit/launch/test_attempts.py::test_an_attempt_is_lost_to_a_stray_message_whatever_it_returns",),
    ),
    Mutant(
        "a reply to another message taken by a worker",
        "WorkerEnd.call",
        """
if (reply.get("id"), reply.get("no")) != (self._id, self._said):
    leave(...)
""",
        "",
        (
            "tests/unit/executors/test_stray.py::"
            "test_a_reply_to_another_message_ends_the_worker_whatever_its_agent_would_do",
        ),
    ),
    Mutant(
        "a message that was dropped before the outcome not missed",
        "WorkerExecutor._outcome",
        """
if ended.no != said + 1:
    raise StrayMessage(...)
""",
        "",
        ("tests/unit/executors/test_stray.py::test_a_message_that_is_lost_before_the_outcome_is_missed",),
    ),
    Mutant(
        "a worker that has sent something unasked gets the next attempt",
        "ConnectedChild.can_start",
        "return not poll.poll(0)",
        "return True",
        ("tests/unit/executors/test_stray.py::test_a_worker_that_sent_something_unasked_gets_no_attempt",),
    ),
    Mutant(
        "a line of another attempt taken from a program that serves",
        "ServeEnd.outcome",
        """
if line["id"] != self._id:
    raise StrayMessage(...)
""",
        "",
        (_faults("serve", "swapped"), _faults("serve", "over")),
    ),
    Mutant(
        "a line of a program that serves taken twice",
        "ServeEnd.outcome",
        """
if line.get("no", self._lines) != self._lines:
    raise StrayMessage(...)
""",
        "",
        (_faults("serve", "doubled"),),
    ),
    Mutant(
        "a forked server's second outcome is the next item's",
        "ServeEnd.outcome",
        """
if line["id"] != self._id:
    raise StrayMessage(...)
""",
        "",
        (_faults("serve", "forked"),),
    ),
    Mutant(
        "a program's message of another attempt taken",
        "ProgramConnection._why_stray",
        """
if given.get("id", end.id) != end.id:
    return ...
""",
        "",
        (_faults("program", "swapped"),),
    ),
    Mutant(
        "a program's message taken twice",
        "ProgramConnection._why_stray",
        "return None if no == self._lines else ...",
        "return None",
        (_faults("program", "doubled"),),
    ),
    Mutant(
        "a reply to another program's message taken",
        "RunnerConnection.call",
        "{name: reply.pop(name, None) for name in address} != address",
        "False",
        (REPLIES, _faults("program", "swapped")),
    ),
    Mutant(
        "a forked child speaks for its worker",
        "refuse_in_child",
        "os.getpid() != pid",
        "False",
        (_faults("worker", "forked"),),
    ),
    Mutant(
        "a forked child that returns from the agent goes on",
        "ending_children",
        "os.getpid() != pid",
        "False",
        (f"{FORKS}::test_a_forked_child_that_does_not_exit_ends_without_a_message[returns-process]",),
        which=1,
    ),
    Mutant(
        "a forked child does other agents' work before it ends",
        "_after_fork_in_child",
        "ready.rotate(1)",
        "pass",
        ("tests/identity/test_forked_children.py::test_a_forked_child_does_not_go_on_as_a_second_runner",),
    ),
    Mutant(
        "numbers of attempts begin again when a parked item is answered",
        "Attempts.settle",
        "if ended.kind == 'waiting':\n    self._numbers[row] = (generation, number)",
        "",
        (
            "tests/unit/launch/test_attempts.py::"
            "test_attempts_of_an_item_that_was_parked_are_counted_on_and_their_ids_differ",
        ),
    ),
    Mutant(
        "a deadline that fires late counts at once",
        "Deadline.fire",
        "self._loop.time() - at > LATE_SECONDS and not self._is_last",
        "False",
        (f"{FROZEN_RUNNER}::test_frozen_past_the_timeout_an_agent_that_is_still_at_work_has_its_whole_time_once_more",),
    ),
    Mutant(
        "a deadline counts before what has arrived is read",
        "Deadline.fire",
        "self._look(TURNS)",
        "self._look(0)",
        (FROZEN,),
    ),
    Mutant(
        "the grace period fires although the runner was frozen",
        "Launch._grant_grace",
        "self._grace = Deadline(..., ...)",
        "asyncio.get_running_loop().call_later(self._job.grace_seconds, slots.cancel)",
        (
            "tests/unit/launch/test_limits.py::test_frozen_past_the_grace_period_what_has_arrived_counts",
            f"{FROZEN_RUNNER}::test_frozen_past_the_grace_period_what_has_arrived_counts",
        ),
    ),
    Mutant(
        "a call overtakes what was sent before it",
        "LoopEnd.call",
        "return self.loop.create_task(self._deliver(message))",
        "return self._deliver(message)",
        ("tests/unit/executors/test_stray.py::test_messages_arrive_in_the_order_in_which_they_were_sent",),
    ),
    Mutant(
        "a message from a thread has its number before its place in the order",
        "LocalEnd._call_from_thread",
        "return asyncio.run_coroutine_threadsafe(self._deliver(message), self.loop).result()",
        """
        self._said += 1
        message.address(self.attempt.id, self._said)
        return asyncio.run_coroutine_threadsafe(self.channel(message), self.loop).result()
        """,
        ("tests/identity/test_messages_of_async_agents.py",),
    ),
]
