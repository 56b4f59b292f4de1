"""Seeded bugs: each is a change of text in a copy of the library, with the tests that are to catch it.

The old text must be there exactly once: where the code has moved on, the gate says so, and the mutant moves with it.
"""

from __future__ import annotations

from dataclasses import dataclass

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
BUDGET = "tests/crash/test_budget_killed.py::test_killed_five_times_what_was_in_flight_counts_as_spent"
CHANGED = "tests/unit/launch/test_steps.py::test_an_item_that_changed_remembers_nothing_of_what_it_was"


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    file: str
    """In the library's folder."""
    old: str
    new: str
    tests: tuple[str, ...]


FOLDER, DISK, RUNS, LAUNCH = "store/folder.py", "store/disk.py", "store/runs.py", "launch.py"
STATE_FILE = "store/statefile.py"

MUTANTS = [
    Mutant(
        "no fsync of the temporary file",
        STATE_FILE,
        "                self._disk.fsync(new.fd)\n",
        "                pass\n",
        (STATES,),
    ),
    Mutant(
        "no folder fsync",
        STATE_FILE,
        """            self._disk.fsync(folder_fd)
""",
        "",
        (STATES,),
    ),
    Mutant(
        "state.json written over in its place",
        STATE_FILE,
        "            self._spare = (kept, self._stored)\n",
        "            self._spare = (self._name, new.identity)\n",
        (STATES,),
    ),
    Mutant(
        "written over though somebody is reading it",
        STATE_FILE,
        """            self._keeps = self._refusals < _REFUSALS
            return False
""",
        """            self._keeps = self._refusals < _REFUSALS
""",
        (STATE_FILES,),
    ),
    Mutant(
        "what somebody put there written over",
        STATE_FILE,
        "_identity_of(found) != new.identity or ",
        "",
        (STATE_FILES,),
    ),
    Mutant(
        "written over though others may read it",
        STATE_FILE,
        " or found.st_mode & 0o077",
        "",
        (STATE_FILES,),
    ),
    Mutant(
        "written over though it has another name",
        STATE_FILE,
        "found.st_nlink != 1 or ",
        "",
        (STATE_FILES,),
    ),
    Mutant(
        "what is written over not cut to its new length",
        STATE_FILE,
        "            if found.st_size > len(text):\n",
        "            if False:\n",
        (STATES,),
    ),
    Mutant(
        "a finished run leaves the state.json before the last",
        FOLDER,
        """        self._state.forget()
        try:
            # From""",
        """        try:
            # From""",
        (STATES,),
    ),
    Mutant(
        "no fsync of the journal before outputs is emptied",
        FOLDER,
        """        self._disk.fsync(self._journal_fd)
""",
        "",
        (STATES,),
    ),
    Mutant(
        "the journal's own entry not fsynced",
        FOLDER,
        """        if self._journal_is_new:
            self._sync_folder()
""",
        """        if self._journal_is_new:
""",
        (STATES,),
    ),
    Mutant(
        "the journal fsynced after the state.json that counts on it",
        FOLDER,
        """                self._replace_state(written, seq, after_journal=is_flushed)
""",
        """                self._replace_state(written, seq)
                if is_flushed:
                    self._sync_journal()
""",
        (STATES,),
    ),
    Mutant(
        "journal read past its length",
        FOLDER,
        "for ref, line in lines.until(self._journal_length):",
        "for ref, line in lines.after(0):",
        (STATES,),
    ),
    Mutant(
        "recovery unlinks before its first commit",
        LAUNCH,
        """        await committer.commit_bare()
        if self._job_json""",
        """        store.prune(keep=[self._spool] if self._spool else [])
        await committer.commit_bare()
        if self._job_json""",
        (RECOVERY,),
    ),
    Mutant(
        "recovery acknowledges before its first commit",
        LAUNCH,
        """        await committer.commit_bare()
        if self._job_json""",
        """        self._watcher(Began(self.progress))
        await committer.commit_bare()
        if self._job_json""",
        (ORDER,),
    ),
    Mutant(
        "new journal named before its content is on disk",
        FOLDER,
        """                self._disk.write(fd, bytes(piece))
                self._disk.fsync(fd)
""",
        """                self._disk.write(fd, bytes(piece))
""",
        (STATES,),
    ),
    Mutant(
        "new journal named before its entry is on disk",
        FOLDER,
        """            self._sync_folder()
            self._replace_state(self._write_state(checkpoint, outputs, name, length), checkpoint.seq)
""",
        """            self._replace_state(self._write_state(checkpoint, outputs, name, length), checkpoint.seq)
""",
        (STATES,),
    ),
    Mutant(
        "old journal unlinked too early",
        FOLDER,
        """            self._replace_state(self._write_state(checkpoint, outputs, name, length), checkpoint.seq)
""",
        """            discard(self._disk, str(self._folder / self._journal_name))
            self._replace_state(self._write_state(checkpoint, outputs, name, length), checkpoint.seq)
""",
        (STATES,),
    ),
    Mutant(
        "slot freed before the checkpoint",
        "slots.py",
        "                await self._committer.commit(Unit(work.row, slot, record))\n",
        "                self._commit = asyncio.ensure_future(self._committer.commit(Unit(work.row, slot, record)))\n",
        (SLOT,),
    ),
    Mutant(
        "acknowledged before the rename",
        "committer.py",
        "            self._order(write, partial(self._finish, units, waiting, note))\n",
        """            for done in waiting:
                self._loop.call_soon(lambda done=done: done.done() or done.set_result(None))
            slowly = (lambda: __import__("time").sleep(0.01) or write()) if units else write
            self._order(slowly, partial(self._finish, units, waiting, note))
""",
        (SLOT,),
    ),
    Mutant(
        "fixed temporary name",
        DISK,
        'f"{folder}/.{name}.{secrets.token_hex(6)}.tmp"',
        'f"{folder}/.{name}.tmp"',
        (STATES,),
    ),
    Mutant(
        "fsync tried again after an error",
        FOLDER,
        """        assert self._folder_fd is not None
        self._disk.fsync(self._folder_fd)
""",
        """        assert self._folder_fd is not None
        try:
            self._disk.fsync(self._folder_fd)
        except OSError:
            self._disk.fsync(self._folder_fd)
""",
        (FSYNC_FAILS,),
    ),
    Mutant(
        "the store goes on after an error",
        FOLDER,
        "        if self._broken is not None:\n",
        "        if False:\n",
        (FSYNC_FAILS,),
    ),
    Mutant(
        "short write not continued",
        DISK,
        "            view = view[written:]\n",
        "            view = view[len(view) :]\n",
        (SHORT_WRITE,),
    ),
    Mutant(
        "lock unlinked",
        "store/lock.py",
        "            os.close(self.fd)\n            self.fd = None\n",
        "            os.close(self.fd)\n            self._path.unlink()\n            self.fd = None\n",
        (ORDER,),
    ),
    Mutant(
        "results renamed before fsync",
        DISK,
        """            disk.fsync(fd)
        finally:
            disk.close(fd)
        disk.replace(temporary, str(path))
""",
        """            disk.replace(temporary, str(path))
            disk.fsync(fd)
        finally:
            disk.close(fd)
""",
        (STATES,),
    ),
    Mutant(
        "no fsync of the output's folder",
        DISK,
        """        raise
    sync_folder(disk, path.parent)
""",
        """        raise
""",
        (STATES,),
    ),
    Mutant(
        "state cleared before the summary",
        FOLDER,
        """            self._runs.file(filed,""",
        """            if self._state_path.exists():
                self._disk.unlink(str(self._state_path))
            self._sync_folder()
            self._runs.file(filed,""",
        (STATES,),
    ),
    Mutant(
        "its own results not known again",
        LAUNCH,
        """            run.checkpoint.context["completing"] = str(run.output)
""",
        "",
        (STATES,),
    ),
    Mutant(
        "a folder made by a killed launch not fsynced",
        DISK,
        """        sync_folder(disk, folder.parent)
    except PermissionError:""",
        """        if made:
            sync_folder(disk, folder.parent)
    except PermissionError:""",
        (RECOVERY,),
    ),
    Mutant(
        "the journal filed before a killed launch's summary is certain",
        RUNS,
        """must not go before it.
            sync_folder(self._disk, self._folder)
""",
        """must not go before it.
            pass
""",
        (RECOVERY,),
    ),
    Mutant(
        "watermark advanced over a running item",
        "ledger.py",
        """        self._advance()

    def _uncount_version""",
        """        self.last_completed = max(self.last_completed, index)

    def _uncount_version""",
        (ORDER,),
    ),
    Mutant(
        "carry committed with the wrong item",
        "standing.py",
        'fields["carry"] = ended.carry if ended.carry_set and ended.kind == "done" else self.carry',
        'fields["carry"] = self.carry',
        (ORDER,),
    ),
    Mutant(
        "carry recovered from the wrong item",
        "recovery.py",
        "        row = ledger.order[at - 1]\n",
        "        row = ledger.order[max(at - 2, 0)]\n",
        (ORDER,),
    ),
    Mutant(
        "`running` not written",
        "standing.py",
        '"slot": slot} for slot, work in in_flight.items()\n',
        '"slot": slot} for slot, work in ()\n',
        (ORDER,),
    ),
    Mutant(
        "seq not checked",
        FOLDER,
        "        if self._seq is None or seq != self._seq + 1:\n",
        "        if self._seq is None:\n",
        (ORDER,),
    ),
    Mutant(
        "a state.json that others replaced written over",
        FOLDER,
        "        if not self._state.is_as_left():\n",
        "        if False:\n",
        (ORDER,),
    ),
    Mutant(
        "an older state.json not noticed",
        FOLDER,
        """        self._check_tail()
        return Loaded""",
        """        return Loaded""",
        (f"{DAMAGE}::test_an_older_copy_is_refused_or_recovered_to_the_right_results",),
    ),
    Mutant(
        "check of state.json not compared",
        "checkpoint.py",
        "    intact = text.endswith(_END) and _is_sealed(text)\n",
        "    intact = True\n",
        (DAMAGE,),
    ),
    Mutant(
        "checksum of records not compared",
        "record.py",
        " and line[8:_BODY_AT] == b'%08x\",' % crc32(line[_BODY_AT:])",
        "",
        (DAMAGE,),
    ),
    Mutant(
        "lock not taken",
        "store/lock.py",
        "            if lock_descriptor(fd, blocking=False) and self._is_at_path(fd):\n",
        "            if True:\n",
        ("tests/crash/test_races.py::test_of_launches_at_the_same_instant_one_runs_and_the_others_exit_75[0]",),
    ),
    Mutant(
        "a full disk ignored by commit",
        FOLDER,
        """                self._replace_state(written, seq, after_journal=is_flushed)
            except OSError as error:
                raise self._break(error) from error
""",
        """                self._replace_state(written, seq, after_journal=is_flushed)
            except OSError:
                pass
""",
        (FSYNC_FAILS,),
    ),
    Mutant(
        "a guardian that kills nothing",
        "executors/guardian.py",
        "        os.kill(pid, signal.SIGKILL)\n",
        "        return False\n",
        ("tests/crash/test_left_behind.py::test_after_the_runners_death_nothing_of_it_is_left[killed-async]",),
    ),
    Mutant(
        "a step answered before its commit",
        "conversation.py",
        "        await self._host.keep(self.work, record)\n",
        """        import asyncio

        _ = asyncio.ensure_future(self._host.keep(self.work, record))
""",
        (STEPS,),
    ),
    Mutant(
        "a step's second occurrence taken for its first",
        "remembered.py",
        "        self._asked[name] += 1\n",
        "",
        (STEPS,),
    ),
    Mutant(
        "compaction drops the steps of unfinished items",
        "ledger.py",
        "return sorted(newest + [ref for refs in self.steps.values() for ref in refs])",
        "self.steps.clear()\n        return sorted(newest)",
        (STEPS,),
    ),
    Mutant(
        "steps kept when the item's content has changed",
        "plan.py",
        "            if ledger.steps and row in ledger.steps and known != contents[row]:\n",
        "            if False:\n",
        (CHANGED,),
    ),
    Mutant(
        "a message unlinked before its record is on disk",
        "mail.py",
        "        if units:\n            await self._committer.commit_all(units)\n",
        """        await self._committer.do(partial(self._store.drop, [one.name for one in decided if one.name]))
        if units:
            await self._committer.commit_all(units)
""",
        (DEATHS,),
    ),
    Mutant(
        "an answer taken for another question",
        "intake.py",
        ' or run.ledger.questions.get(row) != message["question"]',
        "",
        (ANSWERS,),
    ),
    Mutant(
        "an answer taken for another generation",
        "intake.py",
        '    if message["gen"] != run.ledger.generation(row):\n',
        "    if False:\n",
        (ANSWERS,),
    ),
    Mutant(
        "what is begun anew not the newest of its key",
        "ledger.py",
        """            self.refs[row] = ref
        else:
""",
        """            pass
        else:
""",
        (ANEW,),
    ),
    Mutant(
        "a message renamed without fsync",
        "store/inbox.py",
        "                    self._disk.fsync(fd)\n",
        "",
        (INBOX,),
    ),
    Mutant(
        "no folder fsync after a message is posted",
        "store/inbox.py",
        "        sync_folder(self._disk, self._path)\n",
        "",
        (INBOX,),
    ),
    Mutant(
        "reservation not written into `running`",
        "standing.py",
        "                entry |= self.purse.reserved(work.row)\n",
        "                pass\n",
        (BUDGET,),
    ),
    Mutant(
        "lost reservations not charged",
        LAUNCH,
        "        run.purse.charge_left(died_with)\n",
        "",
        (BUDGET,),
    ),
    Mutant(
        "items begun that the budget has no room for",
        "purse.py",
        "self._rest(measure, row) for row in others) + dearest > limit",
        "0 for row in others) + dearest > limit",
        (BUDGET,),
    ),
]
