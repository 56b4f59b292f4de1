"""Bugs in what is written to disk, in which order, and how it is recovered."""

from __future__ import annotations

from crash.seeding import Mutant

STATES = "tests/crash/test_states.py"
STATE_FILES = "tests/contract/test_state_file.py"
ORDER = "tests/crash/test_order.py"
DAMAGE = "tests/crash/test_damage.py"
FSYNC_FAILS = (
    "tests/crash/test_nth_call.py::"
    "test_after_a_failed_call_nothing_is_acknowledged_and_the_next_launch_is_right[fsync-EIO]"
)
SHORT_WRITE = "tests/crash/test_nth_call.py::test_a_short_write_is_continued"
SLOT = f"{ORDER}::test_a_slot_takes_the_next_item_only_when_the_last_checkpoint_is_on_disk"
RECOVERY = "tests/crash/test_second_crash.py::test_a_power_cut_while_a_killed_run_recovers_loses_nothing"
STEPS = (
    "tests/crash/test_steps_killed.py::"
    "test_no_finished_step_is_called_again_no_answer_lost_and_no_question_asked_twice[loop]"
)
DEATHS = (
    "tests/crash/test_steps_killed.py::"
    "test_wherever_a_launch_dies_that_takes_in_answers_or_remembers_steps_the_next_one_is_right"
)
ANSWERS = "tests/crash/test_answers.py::test_of_answers_posted_at_any_time_each_is_taken_in_exactly_once[1]"
ANEW = (
    "tests/crash/test_answers.py::test_what_was_begun_anew_stays_so_when_the_journal_is_compacted_and_the_launch_killed"
)
INBOX = "tests/crash/test_inbox.py"
GUARDIAN = "tests/unit/system/test_guardian.py"
BUDGET = "tests/crash/test_budget_killed.py::test_killed_five_times_what_was_in_flight_counts_as_spent"
CHANGED = "tests/unit/launch/test_steps.py::test_an_item_that_changed_remembers_nothing_of_what_it_was"


MUTANTS = [
    Mutant(
        "no fsync of the temporary file",
        "StateFile.replace",
        "self._disk.fsync(new.fd)",
        "",
        (STATES,),
    ),
    Mutant(
        "no folder fsync",
        "StateFile.replace",
        "self._disk.fsync(folder.fd)",
        "",
        (STATES,),
    ),
    Mutant(
        "no fsync of the journal before outputs is emptied",
        "JournalFile.sync",
        "self._disk.fsync(self._held.fd)",
        "",
        (STATES,),
    ),
    Mutant(
        "the journal's own entry not fsynced",
        "JournalFile.sync",
        "self._disk.fsync(folder.fd)",
        "",
        (STATES,),
    ),
    Mutant(
        "the journal fsynced after the state.json that counts on it",
        "FolderStore.begin.sync",
        """
if is_flushed:
    self._sync_journal(before=written)
self._replace_state(written, seq)
""",
        """
self._replace_state(written, seq)
if is_flushed:
    self._sync_journal()
""",
        (STATES,),
    ),
    Mutant(
        "journal read past its length",
        "Records.scan",
        "self._lines.until(self._length, since=since)",
        "self._lines.after(0)",
        (STATES,),
    ),
    Mutant(
        "recovery unlinks before its first commit",
        "Launch._begin",
        "await checkpointing.commit()",
        """
store.prune(keep=[*([spool] if spool else []), *self._output.side_files])
await checkpointing.commit()
""",
        (RECOVERY,),
        which=0,
    ),
    Mutant(
        "recovery acknowledges before its first commit",
        "Launch._begin",
        "await checkpointing.commit()",
        """
self._watcher(Began(self.progress))
await checkpointing.commit()
""",
        (ORDER,),
        which=0,
    ),
    Mutant(
        "new journal named before its content is on disk",
        "write_journal",
        "disk.fsync(fd)",
        "",
        (STATES,),
    ),
    Mutant(
        "new journal named before its entry is on disk",
        "FolderStore.compact",
        "self._sync_folder()",
        "",
        (STATES,),
    ),
    Mutant(
        "old journal unlinked too early",
        "FolderStore.compact",
        "self._replace_state(..., checkpoint.seq)",
        """
discard(self._disk, str(old))
self._replace_state(self._state.write(encode_checkpoint(checkpoint)), checkpoint.seq)
""",
        (STATES,),
    ),
    Mutant(
        "slot freed before the checkpoint",
        "Slots._work",
        "await self._checkpointing.commit(Unit(work.row, slot, record))",
        "self._committed = asyncio.ensure_future(self._checkpointing.commit(Unit(work.row, slot, record)))",
        (SLOT,),
    ),
    Mutant(
        "acknowledged before the rename",
        "Checkpointing._write",
        "self._order(self._store.begin(checkpoint, records), partial(self._written, units, waiting))",
        """
for done in waiting if units else []:
    self._loop.call_soon(lambda done=done: done.done() or done.set_result(None))
write = self._store.begin(checkpoint, records)
slowly = (lambda: __import__('time').sleep(0.1) or write()) if units else write
self._order(slowly, partial(self._written, units, waiting))
""",
        (SLOT,),
    ),
    Mutant(
        "fixed temporary name",
        "temporary_name",
        "f'{folder}/.{name}.{secrets.token_hex(6)}.tmp'",
        "f'{folder}/.{name}.tmp'",
        (STATES,),
    ),
    Mutant(
        "fsync tried again after an error",
        "FolderStore._sync_folder",
        "self._disk.fsync(self._home.fd)",
        """
try:
    self._disk.fsync(self._home.fd)
except OSError:
    self._disk.fsync(self._home.fd)
""",
        (FSYNC_FAILS,),
    ),
    Mutant(
        "the store goes on after an error",
        "FolderStore._refuse_if_broken",
        "self._broken is not None",
        "False",
        (FSYNC_FAILS,),
    ),
    Mutant(
        "short write not continued",
        "Disk.write",
        "view = view[written:]",
        "view = view[len(view):]",
        (SHORT_WRITE,),
    ),
    Mutant(
        "lock unlinked",
        "FolderLease.release",
        "self.held = None",
        """
os.unlink(self.held.path)
self.held = None
""",
        (ORDER,),
    ),
    Mutant(
        "results renamed before fsync",
        "replace_file",
        """
try:
    for chunk in chunks:
        disk.write(fd, chunk)
    disk.fsync(fd)
finally:
    disk.close(fd)
check()
disk.replace(temporary, str(path))
""",
        """
try:
    for chunk in chunks:
        disk.write(fd, chunk)
    disk.replace(temporary, str(path))
    disk.fsync(fd)
finally:
    disk.close(fd)
""",
        (STATES,),
    ),
    Mutant(
        "no fsync of the output's folder",
        "replace_file",
        "sync_folder(disk, path.parent)",
        "",
        (STATES,),
    ),
    Mutant(
        "state cleared before the summary",
        "FolderStore.finish",
        "self._runs.file(filed, self._journal_path)",
        """
self._state.unlink()
self._sync_folder()
self._runs.file(filed, self._journal_path)
""",
        (STATES,),
    ),
    Mutant(
        "the journal filed without an fsync of the recent outputs",
        "FolderStore.finish",
        "self._sync_journal()",
        "",
        (STATES,),
    ),
    Mutant(
        "a run that is filed gets its recent outputs again",
        "FolderStore.finish",
        "self._outputs and self._runs.summary(summary.run_id) is None",
        "self._outputs",
        (STATES,),
    ),
    Mutant(
        "its own results not known again",
        "Launch._end",
        "run.context.completing = str(run.output)",
        "",
        (STATES,),
    ),
    Mutant(
        "a folder made by a killed launch not fsynced",
        "secure_folder",
        "sync_folder(disk, folder.parent)",
        """
if made:
    sync_folder(disk, folder.parent)
""",
        (RECOVERY,),
    ),
    Mutant(
        "the journal filed before a killed launch's summary is certain",
        "Runs.file",
        "sync_folder(self._disk, self._folder)",
        "",
        (RECOVERY,),
        which=0,
    ),
    Mutant(
        "watermark advanced over a running item",
        "Ledger._count",
        "self.last_completed = index - 1",
        "self.last_completed = len(order) - 1",
        (ORDER,),
        which=1,
    ),
    Mutant(
        "carry committed with the wrong item",
        "Run.record",
        "record.carry = ended.carry if ended.carry_set and ended.kind == 'done' else self.carry",
        "record.carry = self.carry",
        (ORDER,),
    ),
    Mutant(
        "carry recovered from the wrong item",
        "_find_carry",
        "row = ledger.order[at - 1]",
        "row = ledger.order[max(at - 2, 0)]",
        (ORDER,),
    ),
    Mutant(
        "`running` not written",
        "Run.next_checkpoint",
        "in_flight.items()",
        "()",
        (ORDER,),
    ),
    Mutant(
        "seq not checked",
        "FolderStore._refuse_unless_next",
        "self._seq is None or seq != self._seq + 1",
        "self._seq is None",
        (ORDER,),
    ),
    Mutant(
        "a state.json that others replaced written over",
        "first_moved",
        """
if (ours.st_dev, ours.st_ino) != held.file or (found.st_dev, found.st_ino) != held.file:
    return held
if held.stamp is not None and (found.st_mtime_ns, found.st_size) != held.stamp:
    return held
""",
        "",
        (ORDER,),
    ),
    Mutant(
        "an older state.json not noticed",
        "FolderStore.load",
        "check_tail(self._state.path, checkpoint)",
        "",
        (f"{DAMAGE}::test_an_older_copy_is_refused_or_recovered_to_the_right_results",),
    ),
    Mutant(
        "check of state.json not compared",
        "decode_checkpoint",
        "is_intact = text.endswith(_END) and _is_sealed(text)",
        "is_intact = True",
        (DAMAGE,),
    ),
    Mutant(
        "checksum of records not compared",
        "check_record",
        "line[:8] == _PREFIX and line[8:_BODY_AT] == b'%08x\",' % crc32(line[_BODY_AT:])",
        "line[:8] == _PREFIX",
        (DAMAGE,),
    ),
    Mutant(
        "lock not taken",
        "Lock.acquire",
        "lock_descriptor(fd, blocking=False) and self._is_at_path(fd)",
        "True",
        ("tests/crash/test_races.py::test_of_launches_at_the_same_instant_one_runs_and_the_others_exit_75[0]",),
    ),
    Mutant(
        "a full disk ignored by commit",
        "FolderStore.begin.sync",
        "raise self._break(error) from error",
        "pass",
        (FSYNC_FAILS,),
    ),
    Mutant(
        "a guardian that kills nothing",
        "_kill",
        "os.kill(pid, signal.SIGKILL)",
        "return False",
        ("tests/crash/test_left_behind.py::test_after_the_runners_death_nothing_of_it_is_left[killed-async]",),
    ),
    Mutant(
        "a child between fork and exec not waited for",
        "watch_runner",
        "poll.unregister(runner_fd)",
        'return told, b""',
        (
            f"{GUARDIAN}::test_a_program_that_was_just_being_started_when_the_runner_was_killed_dies_before_the_lock_is_free",
        ),
    ),
    Mutant(
        "a program that is being loaded taken for a stranger",
        "carries",
        "None if process is not None and process.environ_bytes != 0 else False",
        "False",
        (f"{GUARDIAN}::test_a_program_that_is_being_loaded_is_never_taken_for_a_stranger",),
    ),
    Mutant(
        "a step answered before its commit",
        "RunnerEnd._commit",
        "await self._launch.commit_step(self.work, record)",
        """
import asyncio
_ = asyncio.ensure_future(self._launch.commit_step(self.work, record))
""",
        (STEPS,),
    ),
    Mutant(
        "a step's second occurrence taken for its first",
        "Recall.step",
        "self._asked[name] += 1",
        "",
        (STEPS,),
    ),
    Mutant(
        "compaction drops the steps of unfinished items",
        "Ledger.live_refs",
        "return sorted(newest + [ref for refs in self.steps.values() for ref in refs])",
        """
self.steps.clear()
return sorted(newest)
""",
        (STEPS,),
    ),
    Mutant(
        "steps kept when the item's content has changed",
        "list_items",
        "ledger.steps and row in ledger.steps and (known != contents[row])",
        "False",
        (CHANGED,),
    ),
    Mutant(
        "a message unlinked before its record is on disk",
        "Mail.commit",
        """
if units:
    await self._checkpointing.commit(*units)
""",
        """
await self._checkpointing.ask(partial(self._store.drop, [one.name for one in decided if one.name]))
if units:
    await self._checkpointing.commit(*units)
""",
        (DEATHS,),
    ),
    Mutant(
        "an answer taken for another question",
        "_answer",
        "run.ledger.states[row] != WAITING or run.ledger.questions.get(row) != message.question or record is None",
        "run.ledger.states[row] != WAITING or record is None",
        (ANSWERS,),
    ),
    Mutant(
        "an answer taken for another generation",
        "_decide",
        "message.gen != run.ledger.generation(row)",
        "False",
        (ANSWERS,),
    ),
    Mutant(
        "what is begun anew not the newest of its key",
        "Ledger._apply_beside",
        "self.refs[row] = ref",
        "",
        (ANEW,),
    ),
    Mutant(
        "a message renamed without fsync",
        "Inbox._write",
        "self._disk.fsync(fd)",
        "",
        (INBOX,),
    ),
    Mutant(
        "no folder fsync after a message is posted",
        "Inbox._write",
        "sync_folder(self._disk, self._path)",
        "",
        (INBOX,),
    ),
    Mutant(
        "reservation not written into `running`",
        "Run.next_checkpoint",
        "entry.reserved, entry.reserved_tokens = self.purse.reserved(work.row)",
        "",
        (BUDGET,),
    ),
    Mutant(
        "lost reservations not charged",
        "Run.charge_left",
        "self.purse.charge_left(self.checkpoint.running)",
        "",
        (BUDGET,),
    ),
    Mutant(
        "items begun that the budget has no room for",
        "Purse.refusal",
        "self._rest(measure, row)",
        "0",
        (BUDGET,),
    ),
]
