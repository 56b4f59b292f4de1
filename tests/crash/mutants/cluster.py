"""Bugs in what keeps attempts on other machines apart: the lease, the fence, and what a checkpoint says of hosts."""

from __future__ import annotations

from crash.seeding import Mutant

LEASES = "tests/unit/executors/cluster/test_lease.py"
LOSSES = "tests/unit/executors/cluster/test_losses.py"
LAUNCHES = "tests/unit/launch/test_clusters.py"
EXECUTOR = "tests/unit/executors/cluster/test_executor.py"

MUTANTS = [
    Mutant(
        "a lease counted from the arrival of its pong",
        "HostLease.pong",
        "self.deadline = sent + self._seconds",
        "self.deadline = __import__('agentrun.system.guardian', fromlist=['x']).boot_clock() + self._seconds",
        (f"{LEASES}::test_a_pong_extends_the_lease_from_the_time_of_its_ping_however_late_it_arrives",),
    ),
    Mutant(
        "the runner counts a lease from before its ping",
        "LeaseView.note_ping",
        "self._until = now + self._seconds",
        "self._until = now + self._seconds / 4",
        (f"{LEASES}::test_the_runner_never_takes_a_host_for_dead_while_its_lease_lasts",),
    ),
    Mutant(
        "an attempt before the first pong",
        "HostLink.is_usable",
        "self._is_open and self._lease.is_known and not self._is_broken and not self.gone.done()",
        "self._is_open and not self._is_broken and not self.gone.done()",
        (f"{LOSSES}::test_no_attempt_is_sent_before_the_first_pong",),
    ),
    Mutant(
        "lost without waiting for the lease",
        "HostLink._await_lease",
        "while (left := self._lease.seconds_left(self._clock())) > 0:\n    await asyncio.sleep(left)",
        "",
        (
            f"{LOSSES}::test_an_attempt_on_a_host_that_is_cut_off_is_lost_only_when_its_lease_has_ended",
            f"{LOSSES}::test_after_a_break_the_lease_is_waited_for_on_the_runner_s_clock",
        ),
    ),
    Mutant(
        "pongs to a host that was given up",
        "HostLink._break",
        "(self._is_broken, self._why) = (True, f'{why}; ')",
        "self._lease.note_ping(0.0)",
        (f"{LOSSES}::test_after_a_break_the_lease_is_waited_for_on_the_runner_s_clock",),
    ),
    Mutant(
        "the launch's mark in place of the run's",
        "join_cluster",
        "run.context.engine or EngineUse(mark=secrets.token_hex(8), lease_seconds=lease_seconds)",
        "EngineUse(mark=secrets.token_hex(8), lease_seconds=lease_seconds)",
        (f"{LAUNCHES}::test_a_launch_that_dies_before_its_fence_does_not_hide_the_one_before_it",),
    ),
    Mutant(
        "what an earlier launch left is not ended",
        "ClusterExecutor.start",
        "await self._fence()",
        "",
        (f"{LOSSES}::test_a_launch_ends_what_an_earlier_one_left_before_it_begins",),
    ),
    Mutant(
        "a host's programs without the mark of the launch that started the cluster",
        "Relay.open",
        "join_marker(environ, (LAUNCH_VARIABLE, mark))",
        "f'{self._mark}:{self._own_mark}'",
        (f"{LOSSES}::test_what_a_host_starts_carries_the_marks_of_the_launches_around_it",),
    ),
    Mutant(
        "lost at once, if what a host sent cannot be used",
        "HostLink._handle",
        "self._give_up(error)",
        "sent.outcome.set_result(Outcome('lost', failure=Failure('lost', str(error), code=HOST_LOST)))",
        (f"{LOSSES}::test_what_a_host_sends_and_cannot_be_used_loses_the_attempt_only_when_it_has_ended",),
    ),
    Mutant(
        "an attempt beside one that was cancelled on a host that was given up",
        "ClusterExecutor.run",
        "await self._wait_for_earlier(attempt.item.key)",
        "",
        (f"{LOSSES}::test_an_attempt_that_is_cancelled_on_a_host_that_is_cut_off_ends_before_the_next_one_begins",),
    ),
    Mutant(
        "a stop forgets where it could not end everything",
        "note_clean_stop",
        "executor.places_left",
        "[]",
        (f"{LAUNCHES}::test_a_stop_leaves_named_what_it_could_not_end",),
    ),
    Mutant(
        "a slot that came while a checkpoint was written is forgotten",
        "join_cluster",
        "has_changed = slots.has_room and bool(growing)",
        "has_changed = False",
        (f"{LAUNCHES}::test_a_slot_that_comes_while_a_checkpoint_is_written_is_used_when_that_is_on_disk",),
    ),
    Mutant(
        "another copy of the job's folder is taken for it",
        "sees_folder",
        "hello['landmark'] is None or landmark(Path(hello['base'])) == hello['landmark']",
        "True",
        (f"{EXECUTOR}::test_another_copy_of_the_job_s_folder_is_not_taken_for_it",),
    ),
    Mutant(
        "a pong waits behind a large frame",
        "HostLink.send",
        "kind in URGENT",
        "False",
        (f"{LOSSES}::test_a_lease_lasts_while_a_slow_line_brings_more_than_it_can_in_that_time",),
    ),
    Mutant(
        "a large frame is put on its way as a whole",
        "Outgoing.__init__",
        "self._room = WINDOW_BYTES",
        "self._room = 1 << 40",
        (f"{LOSSES}::test_a_lease_lasts_while_a_slow_line_brings_more_than_it_can_in_that_time",),
    ),
    Mutant(
        "machines that do not answer are not waited for",
        "ClusterExecutor._fence",
        "set(use.hosts) - answered",
        "set()",
        (f"{LOSSES}::test_machines_that_do_not_answer_are_waited_for_if_they_may_have_attempts",),
    ),
    Mutant(
        "an attempt before a checkpoint names its place",
        "ClusterExecutor.run",
        "await asyncio.shield(self._name(link.place))",
        "self._name(link.place)",
        (f"{EXECUTOR}::test_a_place_is_on_disk_before_it_gets_its_first_attempt",),
    ),
    Mutant(
        "a guardian that does not look at the lease",
        "watch_runner",
        "if (left := lease - boot_clock()) <= 0:\n    return (told, OVERDUE)",
        "left = 1.0",
        (f"{LOSSES}::test_a_host_that_is_stopped_is_killed_when_its_lease_has_ended",),
    ),
    Mutant(
        "a launch without the cluster does not wait",
        "leave_cluster",
        "use is not None and use.hosts",
        "False",
        (f"{LAUNCHES}::test_a_launch_without_the_cluster_waits_until_nothing_can_run_there",),
    ),
    Mutant(
        "a fresh run forgets what the abandoned one left",
        "Launch.work",
        "run.context.engine = self._prepared.abandoned.context.engine",
        "pass",
        (f"{LAUNCHES}::test_a_fresh_run_ends_what_the_abandoned_one_left",),
    ),
    Mutant(
        "files of a step come back after its commit",
        "HostedAttempt.channel",
        "parts = self._changed_work()",
        "pass",
        (f"{EXECUTOR}::test_files_travel_with_the_attempt_and_come_back_with_each_step",),
    ),
]
