"""Bugs in what tells one run of a job from another."""

from __future__ import annotations

from crash.seeding import Mutant

NEXT_RUN = "tests/unit/launch/test_next_run.py"
ITEM_BUDGET = "tests/unit/launch/test_item_budget.py"
BOOKS = "tests/unit/runs/test_books.py"
LAST_COMPLETED = (
    "tests/contract/test_every_store.py::TestFolder::"
    "test_the_last_completed_run_keeps_its_records_and_items_however_many_were_abandoned_since"
)

REPAIR = "tests/crash/test_repair.py"
DAMAGED = f"{REPAIR}::test_whatever_is_whole_after_random_damage_is_not_run_again"
REPAIRED_AGAIN = f"{REPAIR}::test_a_repair_cut_off_at_any_point_can_be_done_again"

MUTANTS = [
    Mutant(
        "a new run knows items that are gone by records it does not have",
        "open_run",
        "ledger.forget_unlisted()",
        "",
        (f"{NEXT_RUN}::test_the_books_of_a_new_run_close_where_items_are_gone_and_come_back",),
    ),
    Mutant(
        "a step that is about to be written is paid twice when its attempt is cancelled",
        "Attempts.commit_step",
        """
        if record.usage is not None:
            self.run.purse.recorded[work.row] = record.usage
        """,
        "",
        (
            "tests/unit/launch/test_steps.py::"
            "test_a_step_that_is_about_to_be_written_when_its_attempt_is_cancelled_is_paid_once",
        ),
    ),
    Mutant(
        "an item's usage is answered before it is on disk",
        "RunnerEnd._keep_to_budget",
        "await self._launch.commit_usage()",
        "",
        (f"{ITEM_BUDGET}::test_what_an_item_reports_is_on_disk_before_it_is_answered",),
    ),
    Mutant(
        "what an item used before a crash does not count towards its budget",
        "Run.charge_left",
        "self._cut_off(one.key, row, one.used)",
        "pass",
        (f"{ITEM_BUDGET}::test_after_a_crash_the_item_has_used_what_it_reported",),
    ),
    Mutant(
        "repair takes a record with a wrong check",
        "Fragments.add",
        "check_record(line)",
        "line[:1] == b'{'",
        (DAMAGED,),
    ),
    Mutant(
        "repair replaces state.json before the old files are aside",
        "FolderSalvage.rebuild",
        """
        self._runs.keep_copies(self._to_keep())
        if wreck.findings is None:
            self._clear(wreck)
        else:
            self._replace(wreck.findings)
        """,
        """
        if wreck.findings is None:
            self._clear(wreck)
        else:
            self._replace(wreck.findings)
        self._runs.keep_copies(self._to_keep())
        """,
        (REPAIRED_AGAIN,),
    ),
    Mutant(
        "repair unlinks the old journals before the new state is in force",
        "FolderSalvage._replace",
        "name = journal_name(self._next_number())",
        """
        name = journal_name(self._next_number())
        for one in old:
            discard(self._disk, str(self._folder / one))
        """,
        (DAMAGED,),
    ),
    Mutant(
        "repair lets an older record count where a newer one is damaged",
        "find_out",
        "outdated = _outdated(files, placed)",
        "outdated = set()",
        ("tests/contract/test_folder_repair.py",),
    ),
    Mutant(
        "a run whose state.json is missing is started over",
        "FolderStore.load",
        "check_missing(self._state.path, self._runs)",
        "",
        ("tests/contract/test_folder_repair.py",),
    ),
    Mutant(
        "runs ordered by the clock",
        "Summary.age",
        "return self.number, self.run_id",
        "return 0, self.run_id",
        (f"{NEXT_RUN}::test_the_clock_set_back_between_runs_changes_nothing",),
    ),
    Mutant(
        "the last completed run pruned",
        "Runs.prune",
        "one is not last",
        "True",
        (LAST_COMPLETED,),
        which=1,
    ),
    Mutant(
        "a finished run not continued",
        "Preparation.begin",
        "last_finished(ended) if not self.options.fresh else None",
        "None",
        (f"{NEXT_RUN}::test_a_second_start_runs_nothing_and_files_nothing",),
    ),
    Mutant(
        "what runs again on purpose keeps its generation",
        "_kept_records",
        "yield structs.replace(run.new_record('redo', row, record.key), seq=record.seq)",
        "yield record",
        (f"{NEXT_RUN}::test_what_runs_again_on_purpose_has_a_new_generation_wherever_the_launch_dies",),
    ),
    Mutant(
        "the keys of side effects by run instead of by series",
        "Attempts.__init__",
        "self._series = run.checkpoint.series",
        "self._series = run.checkpoint.run_id",
        (f"{NEXT_RUN}::test_runs_of_a_series_share_the_keys_of_side_effects_and_a_fresh_run_has_others",),
    ),
    Mutant(
        "the record of another item not noticed",
        "Books._check",
        "not ledger.is_at(row, key_digest(record.key))",
        "False",
        (BOOKS,),
    ),
    Mutant(
        "usage that does not add up not noticed",
        "Books._close",
        "self._check_usage()",
        "",
        (BOOKS,),
    ),
]
