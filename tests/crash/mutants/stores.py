"""Bugs in what keeps two runners of a job in a shared place apart, and in what a launch makes of a lost answer."""

from __future__ import annotations

from crash.seeding import Mutant

FENCES = "tests/contract/test_fences.py"
HOME = f"{FENCES}::TestSqliteHome"
RUNNERS = f"{FENCES}::TestSqliteFences"
FENCED = f"{HOME}::test_only_who_has_the_lease_can_change_the_job"
LATE = f"{RUNNERS}::test_who_was_stopped_past_the_lease_changes_nothing_any_more"
FOLLOWS = f"{HOME}::test_a_commit_that_does_not_follow_the_stored_one_is_refused_and_changes_nothing"
UNSURE = "tests/unit/store/test_keyed_unsure.py"
PATIENCE = f"{UNSURE}::test_with_patience_the_run_goes_on_and_nothing_is_lost_or_doubled"
RECOVERY = f"{UNSURE}::test_without_patience_the_next_launch_has_everything_that_was_acknowledged"
LOOKS = f"{UNSURE}::test_with_patience_a_look_that_was_not_answered_is_made_again"
LEASE = "tests/unit/store/test_keyed_lease.py"
INBOX = "tests/unit/store/test_keyed_inbox.py"
READERS = "tests/unit/store/test_keyed_readers.py"
COMMAND = "tests/cli/test_stores.py"
ENDINGS = (
    "tests/unit/executors/test_endings.py"
    "::test_an_item_whose_cancelled_attempt_did_not_end_is_begun_again_only_after_it"
)

MUTANTS = [
    # ---- the conditions of a database
    Mutant(
        "no epoch in the condition of a commit",
        "SqlHome.commit",
        'f"update {{p}}job set seq = ?, state = ?, run = ?, until = {self._place.now} + ? '
        'where job = ? and epoch = ? and "',
        'f"update {{p}}job set seq = ?, state = ?, run = ?, until = {self._place.now} + ? '
        'where job = ? and ? is not null and "',
        (f"{FENCED}[commit]", f"{LATE}[commit]"),
    ),
    Mutant(
        "no seq in the condition of a commit",
        "SqlHome.commit",
        'follows, before = ("state is not null and seq = ?", [commit.seq - 1])',
        'follows, before = ("state is not null", [])',
        (FOLLOWS,),
    ),
    Mutant(
        "the first commit of a run over the state of another",
        "SqlHome.commit",
        '"state is null and not exists (select 1 from {p}ended where job = ? and run = ?)"',
        '"not exists (select 1 from {p}ended where job = ? and run = ?)"',
        (f"{HOME}::test_the_first_commit_of_a_run_needs_a_job_without_a_state_and_any_other_one_with_it",),
    ),
    Mutant(
        "a first commit that comes late begins its run again",
        "SqlHome.commit",
        """
follows = "state is null and not exists (select 1 from {p}ended where job = ? and run = ?)"
before = [self._job, commit.run_id]
""",
        """
follows = "state is null"
before = []
""",
        (f"{HOME}::test_a_first_commit_that_comes_again_when_its_run_has_ended_is_refused",),
    ),
    Mutant(
        "a commit does not renew the lease",
        "SqlHome.commit",
        'f"update {{p}}job set seq = ?, state = ?, run = ?, until = {self._place.now} + ? '
        'where job = ? and epoch = ? and "',
        '"update {p}job set seq = ?, state = ?, run = ?, until = until + 0 * ? where job = ? and epoch = ? and "',
        (f"{HOME}::test_a_commit_renews_the_lease",),
    ),
    Mutant(
        "a beat without the epoch",
        "SqlHome.beat",
        'f"update {{p}}job set until = {self._place.now} + ? where job = ? and epoch = ?"',
        'f"update {{p}}job set until = {self._place.now} + ? where job = ? and ? is not null"',
        (f"{HOME}::test_who_has_lost_the_lease_can_neither_renew_it_nor_give_it_back",),
    ),
    Mutant(
        "a lease given back without the epoch",
        "SqlHome.give",
        '"update {p}job set holder = null, until = 0 where job = ? and epoch = ?"',
        '"update {p}job set holder = null, until = 0 where job = ? and ? is not null"',
        (f"{HOME}::test_who_has_lost_the_lease_can_neither_renew_it_nor_give_it_back", f"{LATE}[load]"),
    ),
    Mutant(
        "a lease taken without the condition",
        "SqlHome.take",
        'f"update {{p}}job set epoch = epoch + 1, holder = ?, until = {now} + ? where job = ? and epoch = ? '
        'and (holder is null or until <= {now} or holder = ?)"',
        'f"update {{p}}job set epoch = epoch + 1, holder = ?, until = {now} + ? where job = ? and ? is not null '
        'and ? is not null"',
        (f"{HOME}::test_of_six_who_take_it_at_once_one_succeeds",),
    ),
    Mutant(
        "a lease taken from a holder that was not seen",
        "SqlHome.take",
        'f"update {{p}}job set epoch = epoch + 1, holder = ?, until = {now} + ? where job = ? and epoch = ? '
        'and (holder is null or until <= {now} or holder = ?)"',
        'f"update {{p}}job set epoch = epoch + 1, holder = ?, until = {now} + ? where job = ? and epoch = ? '
        'and ? is not null"',
        (f"{HOME}::test_a_lease_that_has_not_run_out_is_taken_only_from_the_holder_that_was_seen",),
    ),
    Mutant(
        "no epoch in the condition of the other changes",
        "SqlHome._ours",
        '"update {p}job set epoch = epoch where job = ? and epoch = ?"',
        '"update {p}job set epoch = epoch where job = ? and ? is not null"',
        (f"{FENCED}[finish]", f"{LATE}[keep]", f"{LATE}[prune]"),
    ),
    Mutant(
        "a job replaced without the epoch",
        "SqlHome.replace",
        '"update {p}job set seq = ?, state = ?, run = ? where job = ? and epoch = ?"',
        '"update {p}job set seq = ?, state = ?, run = ? where job = ? and ? is not null"',
        (f"{FENCED}[replace]",),
    ),
    Mutant(
        "a job cleared without the epoch",
        "SqlHome.clear",
        '"update {p}job set state = null, seq = 0, run = null where job = ? and epoch = ?"',
        '"update {p}job set state = null, seq = 0, run = null where job = ? and ? is not null"',
        (f"{FENCED}[clear]", f"{LATE}[clear]"),
    ),
    Mutant(
        "the epoch begins again when a job is cleared",
        "SqlHome.clear",
        '"update {p}job set state = null, seq = 0, run = null where job = ? and epoch = ?"',
        '"update {p}job set state = null, seq = 0, run = null, epoch = 0 where job = ? and epoch = ?"',
        (f"{HOME}::test_the_epoch_only_grows_whatever_becomes_of_the_job",),
    ),
    Mutant(
        "a finish that comes late clears the state of the next run",
        "SqlHome.finish",
        '"update {p}job set state = null, seq = 0, run = null where job = ? and run = ?"',
        '"update {p}job set state = null, seq = 0, run = null where job = ? and ? is not null"',
        (f"{HOME}::test_finishing_a_run_again_leaves_the_state_of_the_next_one_alone", f"{PATIENCE}[last]"),
    ),
    Mutant(
        "a side file that is replaced while it is read mixed from two",
        "SqlHome._pieces",
        "found.get(-1) != version",
        "False",
        (f"{HOME}::test_who_reads_a_side_file_that_is_changed_reads_it_as_it_was_or_is_told",),
    ),
    # ---- the lease
    Mutant(
        "a holder in another container taken for dead",
        "is_dead",
        "holder.place == 'here' and not is_alive(holder.pid, holder.started)",
        "not is_alive(holder.pid, holder.started)",
        (f"{RUNNERS}::test_a_holder_elsewhere_counts_as_alive_until_its_lease_runs_out_whatever_its_host_is_called",),
    ),
    Mutant(
        "a holder of this machine that is dead waited for",
        "_is_taken",
        "head.fresh and (holder is None or not is_dead(holder))",
        "head.fresh",
        (
            f"{RUNNERS}::test_a_holder_of_this_machine_that_was_killed_is_replaced_at_once",
            f"{FENCES}::test_a_process_that_was_killed_is_replaced_at_once_with_all_that_it_committed",
        ),
    ),
    Mutant(
        "the clock of the place not asked before a job is busy",
        "take_lease",
        "is_over or not _is_taken(head)",
        "not _is_taken(head)",
        (f"{LEASE}::test_before_a_job_is_busy_the_clock_of_the_place_is_asked",),
    ),
    Mutant(
        "a lease of ours whose answer was lost waited for",
        "take_lease",
        "seen is not None and head.holder == me",
        "False",
        (f"{LEASE}::test_a_lease_whose_taking_was_not_answered_is_found_to_be_ours_or_taken_again",),
    ),
    Mutant(
        "a lease of ours whose answer was lost held for one that was left behind",
        "take_lease",
        "last_holder(seen)",
        "last_holder(head)",
        (f"{LEASE}::test_a_lease_whose_taking_was_not_answered_is_found_to_be_ours_or_taken_again",),
    ),
    Mutant(
        "a lease not lost by the clock of its holder",
        "KeyedLease.is_lost",
        "self.lost is not None or lease_clock() >= self._renewed_at + self._ttl_seconds",
        "self.lost is not None",
        (f"{RUNNERS}::test_a_lease_is_lost_by_its_own_clock_and_renewed_by_the_next_commit",),
    ),
    Mutant(
        "a commit does not renew the lease by the clock of its holder",
        "KeyedStore._send",
        "self._lease.renewed(sent_at)",
        "",
        (f"{RUNNERS}::test_a_lease_is_lost_by_its_own_clock_and_renewed_by_the_next_commit",),
    ),
    Mutant(
        "a heart that stops when the place does not answer",
        "KeyedLease._beat",
        "wait = min(_RETRY_SECONDS, self._ttl_seconds / 10)",
        "return",
        (f"{LEASE}::test_the_heart_goes_on_when_the_place_does_not_answer_for_a_while",),
    ),
    Mutant(
        "a heartbeat that is refused not noted",
        "KeyedLease._beat",
        "self.lost = error",
        "",
        (f"{LEASE}::test_the_heartbeat_finds_out_that_the_job_is_anothers_and_gives_nothing_back",),
    ),
    Mutant(
        "a lease given back while it is being renewed",
        "KeyedLease.release",
        """
with self._beating:
    if self.lost is None:
        self._home.give(self.epoch)
""",
        """
if self.lost is None:
    self._home.give(self.epoch)
""",
        (f"{LEASE}::test_no_heartbeat_comes_after_the_lease_was_given_back",),
    ),
    # ---- lost answers
    Mutant(
        "an unsure commit taken as done",
        "KeyedStore._send",
        "patience.after(error)",
        "break",
        (f"{PATIENCE}[before]", f"{RECOVERY}[before]"),
    ),
    Mutant(
        "an unsure commit that was done not recognised, and our own try taken for another's",
        "KeyedStore._send",
        "head.epoch == self._lease.epoch and head.seq == commit.seq and head.state == commit.state",
        "False",
        (f"{PATIENCE}[late]",),
    ),
    Mutant(
        "a commit that was refused taken for one of ours by its seq alone",
        "KeyedStore._send",
        "head.epoch == self._lease.epoch and head.seq == commit.seq and head.state == commit.state",
        "head.seq == commit.seq",
        (f"{RUNNERS}::test_a_commit_that_another_made_with_the_same_seq_is_not_taken_for_ours",),
    ),
    Mutant(
        "an unsure commit taken for another's commit with the same seq",
        "KeyedStore._send",
        """
if head.epoch != self._lease.epoch:
    raise self._lost(head)
if head.seq == commit.seq and head.state == commit.state:
    break
""",
        """
if head.seq == commit.seq:
    break
""",
        (f"{UNSURE}::test_an_unsure_commit_is_not_taken_for_the_one_of_another_with_the_same_seq",),
    ),
    Mutant(
        "a store that accepts changes after one that failed",
        "KeyedStore._refuse_if_broken",
        """
if self._broken is not None:
    raise StoreError(f"{self.home.shown}: an earlier write failed ({self._broken})")
""",
        "",
        (f"{RECOVERY}[before]",),
    ),
    Mutant(
        "records read again from the first when the connection was cut",
        "KeyedRecords.scan",
        "self._home.scan(self._journal, since, self._length)",
        "self._home.scan(self._journal, 0, self._length)",
        (LOOKS,),
    ),
    # ---- what is removed
    Mutant(
        "a launch removes the records that its readers read",
        "KeyedStore.prune",
        "self._insist(self.home.journals) - self._named() - self._in_use",
        "self._insist(self.home.journals) - self._named()",
        (f"{READERS}::test_what_somebody_reads_is_removed_by_the_next_launch_and_not_by_this_one",),
    ),
    Mutant(
        "journals that nothing names kept for ever",
        "KeyedStore.prune",
        "if old or unused: self._insist(lambda: self.home.forget(self._epoch, runs=old, journals=unused))",
        "",
        (f"{RUNNERS}::test_what_who_lost_the_job_staged_is_removed_and_nobody_reads_it", f"{PATIENCE}[before]"),
    ),
    Mutant(
        "requests to stop removed without the epoch",
        "KeyedInbox.sweep",
        "self._home.drop(old, epoch=epoch)",
        "self._home.drop(old)",
        (f"{RUNNERS}::test_a_stop_that_was_asked_for_is_not_removed_by_who_lost_the_job",),
    ),
    Mutant(
        "a state set aside by who lost the job",
        "put_aside",
        'home.put(f"{ASIDE}{name}.state", in_pieces([head.state or b""]), epoch=epoch)',
        'home.put(f"{ASIDE}{name}.state", in_pieces([head.state or b""]))',
        (f"{LATE}[set aside]",),
    ),
    # ---- messages
    Mutant(
        "the fate of a message removed with it",
        "KeyedInbox.drop",
        "self._home.drop([INBOX + name for name in dropped], epoch=epoch)",
        """
self._home.drop([INBOX + name for name in dropped], epoch=epoch)
self._home.drop([FATE + name for name in dropped])
""",
        (f"{INBOX}::test_who_takes_a_message_back_while_a_runner_processes_it_is_told_the_truth",),
    ),
    Mutant(
        "the fate of a message removed by the launch that decided it",
        "KeyedInbox.sweep",
        "sorted(decided - self._claimed)",
        "sorted(decided)",
        (f"{INBOX}::test_the_fate_of_a_message_outlives_it_until_the_next_launch",),
    ),
    Mutant(
        "the fate of a message removed before it",
        "KeyedInbox.sweep",
        "{name.removeprefix(FATE) for name in fates} - {name.removeprefix(INBOX) for name in names}",
        "{name.removeprefix(FATE) for name in fates}",
        (f"{INBOX}::test_a_message_that_is_claimed_keeps_its_fate_whoever_prunes",),
    ),
    Mutant(
        "a message that was taken back half stays for ever",
        "KeyedInbox.claim",
        "self._home.drop([INBOX + name])",
        "",
        (f"{INBOX}::test_a_message_whose_taking_back_was_interrupted_is_not_stuck",),
    ),
    Mutant(
        "a message that was taken back half cannot be taken back again",
        "KeyedInbox.withdraw",
        "not self._home.put_new(FATE + name, _WITHDRAWN) and self._text(FATE + name) != _WITHDRAWN",
        "not self._home.put_new(FATE + name, _WITHDRAWN)",
        (f"{INBOX}::test_a_message_whose_taking_back_was_interrupted_is_not_stuck",),
    ),
    Mutant(
        "a message claimed that is gone",
        "KeyedInbox.claim",
        "fate is not None and self._text(INBOX + name) is not None",
        "fate is not None",
        (f"{INBOX}::test_a_runner_processes_no_message_that_is_taken_back_meanwhile",),
    ),
    Mutant(
        "a message processed without looking whether it was taken back",
        "KeyedInbox.claim",
        "fate = _CLAIMED if is_new else self._text(FATE + name)",
        "fate = _CLAIMED",
        (f"{INBOX}::test_a_message_whose_taking_back_was_interrupted_is_not_stuck",),
    ),
    # ---- the conditions of other places
    Mutant(
        "a Postgres that may lose what it has acknowledged",
        "PostgresServer._refuse_unless_sound",
        'fsync != "on"',
        "False",
        ("tests/areas/stores/test_postgres.py",),
    ),
    Mutant(
        "a Redis that may lose what it has acknowledged",
        "why_unsound",
        "settings.get(name) not in (wanted, None)",
        "False",
        ("tests/areas/stores/test_redis_refusals.py",),
    ),
    # ---- where a job is
    Mutant(
        "an item in flight when the lease has run out",
        "Launch._watch_lease",
        "self.lease.is_lost",
        "False",
        (
            f"{COMMAND}::test_items_in_flight_are_ended_when_the_lease_has_run_out_and_the_run_continues_when_the_"
            f"store_answers",
        ),
    ),
    Mutant(
        "a job of another place continued without a word",
        "is_from_elsewhere",
        "place is not None and bool(was) and was != place.text",
        "False",
        (f"{COMMAND}::test_another_place_takes_a_job_over_only_with_a_word",),
    ),
    Mutant(
        "a job started over in another store without a word",
        "Jobs.check_one_place",
        "_has_runs(store)",
        "False",
        (f"{COMMAND}::test_a_job_is_not_started_over_in_another_store_without_a_word",),
    ),
    Mutant(
        "a job that was moved away started at its origin",
        "Launch.prepare",
        "check_not_moved(self._store, self._job.name, fresh=self._options.fresh)",
        "",
        ("tests/cli/test_export.py::test_a_job_that_was_moved_does_not_start_here_until_it_is_back",),
    ),
    Mutant(
        "the store shown to agents",
        "agentrun_cli:make_ready",
        "hide_secrets(os.environ, address_of(opened))",
        "",
        (f"{COMMAND}::test_an_agent_sees_neither_the_store_nor_the_keys",),
    ),
    Mutant(
        "a copied folder not recognised",
        "agentrun_cli:launch",
        "check_not_copied(opened)",
        "",
        (f"{COMMAND}::test_a_copied_folder_with_an_unfinished_run_is_recognised",),
    ),
    # ---- what a runner that lost its job can still do
    Mutant(
        "messages removed without the epoch",
        "KeyedStore.drop",
        "self._insist(lambda: self._inbox.drop(wanted, epoch=epoch))",
        "self._insist(lambda: self._inbox.drop(wanted, epoch=None))",
        (f"{LATE}[drop]",),
    ),
    Mutant(
        "a lease taken that was renewed after the look",
        "_passed_by",
        "return Head(head.epoch, head.holder if holder is not None and is_dead(holder) else None)",
        "return head",
        (f"{RUNNERS}::test_a_lease_that_is_renewed_right_after_the_look_is_not_taken",),
    ),
    Mutant(
        "a cancelled attempt in a thread not waited for",
        "ThreadExecutor.run",
        "self._strays[key] = loop.create_future()",
        "pass",
        (f"{ENDINGS}[thread]",),
    ),
    Mutant(
        "a cancelled attempt on the loop not waited for",
        "LoopExecutor.run",
        "earlier = [ending for ending, end in self._strays.items() if end.attempt.item.key == key]",
        "earlier = []",
        (f"{ENDINGS}[loop]",),
    ),
    Mutant(
        "patience begins again with each call",
        "KeyedStore._insist",
        "self._patience.insist(call)",
        "Patience(self._timing.patience_seconds).insist(call)",
        (f"{UNSURE}::test_patience_counts_from_the_first_error_of_an_outage_whoever_meets_it",),
    ),
    Mutant(
        "a summary that cannot be read passed over",
        "read_summaries",
        "(_summary_of(home, one) for one in home.ended())",
        "(found for one in home.ended() if (found := decode_summary(one.summary)) is not None)",
        (f"{READERS}::test_a_summary_that_cannot_be_read_stops_everything_but_a_fresh_start",),
    ),
]
