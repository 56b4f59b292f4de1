"""Bugs in what a night needs to know from launch to launch, and in when others are told."""

from __future__ import annotations

from crash.seeding import Mutant

METERS = "tests/unit/launch/test_meters.py"
SPEED = "tests/unit/launch/test_speed_kept.py"
DETACH = "tests/cli/test_detach.py"

MUTANTS = [
    Mutant(
        "what a rate allowed is forgotten by the next launch",
        "Meters.keep",
        "context.rate_until = ...",
        "pass",
        (f"{METERS}::test_a_launch_that_was_killed_has_used_what_it_may_have_used",),
    ),
    Mutant(
        "what tokens were used is forgotten by the next launch",
        "Meters.keep",
        "context.tokens_until = ...",
        "pass",
        (f"{METERS}::test_a_call_that_used_more_than_expected_holds_up_the_next_launch_as_it_would_this_one",),
    ),
    Mutant(
        "a launch that was killed used nothing after its last checkpoint",
        "Meters.restore",
        "died_with * self._attempts_each",
        "0",
        (f"{METERS}::test_a_launch_that_was_killed_has_used_what_it_may_have_used",),
    ),
    Mutant(
        "the speed that a server bore is not in the checkpoint",
        "Gate.keep",
        "context.speed = ...",
        "pass",
        (f"{SPEED}::test_what_a_server_bears_is_in_the_checkpoint",),
    ),
    Mutant(
        "the speed that a server bore holds for ever",
        "Speed.restore",
        "0 <= self._wall_clock() - speed.at <= SPEED_HOLDS_SECONDS",
        "True",
        (f"{SPEED}::test_a_speed_is_taken_up_again_within_ten_minutes",),
    ),
    Mutant(
        "--detach returns before the first checkpoint",
        "agentrun_cli:launch",
        "ready = make_ready(opened, tells=...)",
        """
        ready = make_ready(opened, tells=not given.get("plan"))
        store.folder.mkdir(parents=True, exist_ok=True)
        detaching.hand_over(job.name, job.name, store.folder, quiet=False, as_json=False)
        """,
        (f"{DETACH}::test_items_may_come_from_standard_input",),
    ),
    Mutant(
        "a detached launch stays in the session of its terminal",
        "agentrun_cli:detach",
        "subprocess.Popen(..., pass_fds=[write_end], start_new_session=True)",
        """
        subprocess.Popen(
            [sys.executable, "-P", "-m", "agentrun_cli.detaching", str(write_end), *words], pass_fds=[write_end]
        )
        """,
        (f"{DETACH}::test_twenty_terminals_are_closed_right_after_and_all_runs_finish",),
    ),
    Mutant(
        "notices go out before the checkpoint that says how the launch ended",
        "Launch.work",
        """
        run.checkpoint.stopped = how_it_stopped(run, slots.stop_reason, error)
        await checkpointing.commit()
        """,
        "pass",
        ("tests/cli/test_notify.py::test_a_notice_is_sent_when_everything_is_on_disk",),
    ),
]
