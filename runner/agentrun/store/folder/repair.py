"""The repair of a folder whose state cannot be loaded: which files are of the run, and the new state made of them.

**At every instant either the old files or the new state is in force**: the old ones are copied to `runs`, durably,
before state.json is replaced, and nothing else is changed. Crash windows: runner/DESIGN.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentrun.checkpoint.checkpoint import VERSION, Checkpoint, Journal, RunContext, encode_checkpoint
from agentrun.checkpoint.message import is_run_id
from agentrun.checkpoint.summary import Summary
from agentrun.errors import CheckpointError
from agentrun.store.folder.findings import Findings, find_out
from agentrun.store.folder.journal import JournalLines, Records, journal_name, journal_number
from agentrun.store.folder.rollback import check_tail, journals_in
from agentrun.store.folder.runs import FOLDER as RUNS
from agentrun.store.folder.runs import Runs
from agentrun.store.folder.state import NAME as STATE
from agentrun.store.folder.state import StateFile, read_checkpoint
from agentrun.store.folder.wreckage import (
    Fragments,
    filed_records,
    fitting,
    in_order,
    is_json,
    is_of_open_run,
    of_one_run,
    read_fields,
    read_journal,
    read_lines,
    read_outputs,
)
from agentrun.store.local.history import History, last_launch
from agentrun.store.port import HistoryEvent, Store
from agentrun.store.salvage import Damage, Salvage
from agentrun.system.disk import Disk, discard, disk_errors, names_in, replace_file, sync_folder
from agentrun.values.clock import new_run_id, now_text

SET_ASIDE = "-set-aside."


@dataclass(slots=True)
class Wreck:
    """What a repair works with."""

    problem: str
    text: bytes | None
    """Of state.json, if it is there."""
    files: list[Fragments] = field(default_factory=list)
    """Those of the run: its journals, oldest first, and then state.json."""
    others: list[str] = field(default_factory=list)
    """Journals that are of another run."""
    findings: Findings | None = None
    """What the files say; None if the run has ended."""
    ended: Summary | None = None
    """The run has ended, and its state was not cleared."""


class FolderSalvage(Salvage):
    """The repair of the job in `folder`, which `store` cannot load."""

    def __init__(self, store: Store, folder: Path, disk: Disk) -> None:
        self._store = store
        self._folder = folder
        self._disk = disk
        self._runs = Runs(folder, disk)
        self._state = StateFile(folder, disk)
        self._aside = f"{new_run_id()}-before-repair"
        self._wreck: Wreck | None = None

    # ---- examining

    def examine(self) -> Damage:
        notes = [f"{RUNS}/{name} was put aside by --fresh, and is left as it is" for name in self._set_aside()]
        try:
            loaded = self._store.load()
            found = loaded.checkpoint if loaded.finished is None else None
            if found is None:
                return Damage(notes=notes)
            records = sum(1 for _ in self._store.scan())
            return Damage(run_id=found.run_id, records=records, counts=_settled(found.counts), notes=notes)
        except CheckpointError as error:
            problem = self._shortened(error)
        with disk_errors(self._folder):
            self._wreck = wreck = self._gather(problem)
        damage = Damage(problem=wreck.problem, aside=[f"{RUNS}/{name}" for name in self._to_keep().values()])
        if wreck.text is not None and is_json(wreck.text) and any(file.lost for file in wreck.files if file.text):
            notes.append(f"if {STATE} was edited on purpose, resume with --accept-edits instead")
        notes += [f"{name} is of another run, and is only put aside" for name in wreck.others]
        if wreck.findings is None:
            return replace(damage, notes=[*notes, "the run has ended, and its records are in runs; nothing is lost"])
        findings = wreck.findings
        return replace(
            damage,
            run_id=findings.checkpoint.run_id,
            records=len(findings.records),
            counts=_settled(findings.checkpoint.counts),
            found_in=[file.name for file in wreck.files if file.whole],
            lost=findings.lost,
            unknown=findings.unknown,
            notes=notes,
        )

    def _gather(self, problem: str) -> Wreck:
        text = self._read_state()
        values = read_fields(text) if text is not None else {}
        if isinstance(version := values.get("version"), int) and version > VERSION:
            raise CheckpointError(f"{self._state.path}: is of version {version}, from a newer agentrun; use that one")
        wreck = Wreck(_of_torn(text) or problem, text)
        state = read_outputs(self._state.path, text, values) if text is not None else None
        run_id, whole = str(values.get("run_id")), self._checkpoint(text)
        ended = self._runs.summary(run_id) if is_run_id(run_id) else None
        named = _named(values)
        length = whole.journal.length if whole is not None and not self._is_older(whole) else None
        journals = self._journals(named, length, skip=ended.journal if ended is not None else "")
        if ended is not None:
            if not any(journal.whole for journal in journals):
                wreck.ended = ended
                return wreck
            state, values = None, {}  # the state of another run was put over this one's
        if not any(file.whole for file in [*journals, *([state] if state else [])]):
            raise CheckpointError(
                f"{self._folder}: {wreck.problem}, and not one whole record is left; restore it from a backup, or "
                f"start over with --fresh (the old files are kept)"
            )
        number = fitting(RunContext, values.get("context")).get("number", 0)
        wreck.files = self._of_the_run(state, run_id, number, journals, named)
        wreck.others = [journal.name for journal in journals if journal.whole and journal not in wreck.files]
        is_its_own = state is not None and state in wreck.files
        wreck.findings = find_out(
            self._folder,
            wreck.files,
            in_order(wreck.files),
            values if is_its_own else {},
            is_intact=whole is not None,
            ended=self._runs.summaries(),
        )
        return wreck

    def _checkpoint(self, text: bytes | None) -> Checkpoint | None:
        """The checkpoint in a state.json that is as it was written."""
        try:
            return read_checkpoint(text or b"", self._state.path)
        except CheckpointError:
            return None

    def _is_older(self, checkpoint: Checkpoint) -> bool:
        try:
            check_tail(self._state.path, checkpoint)
        except CheckpointError:
            return True
        return False

    def _of_the_run(
        self, state: Fragments | None, run_id: str, number: int, journals: list[Fragments], named: str
    ) -> list[Fragments]:
        whole, last = [journal for journal in journals if journal.whole], last_launch(self._folder)
        newest = whole[0].name if whole else ""
        own = {named}
        if not named or (last is not None and last.run_id == run_id) or (number and whole and whole[0].run == number):
            # Torn before it names one: it is the newest that there was. Or it is older than a compaction.
            own.add(newest)
        start = state if state is not None and (not whole or _number(named) > _number(newest)) else whole[0]
        others = [one for one in [state, *journals] if one is not None and one is not start]
        return sorted(of_one_run(start, others, own), key=lambda file: (file is state, _number(file.name)))

    def _journals(self, named: str, length: int | None, *, skip: str) -> list[Fragments]:
        """Newest first; not those that are only a copy of what is kept of ended runs."""
        names = sorted((name for name in journals_in(self._folder) if name != skip), key=_number, reverse=True)
        ended, filed = filed_records(self._runs) if names else (set(), set())
        found = []
        for name in names:
            path = self._folder / name
            journal = read_journal(path, length=length if name == named else None)
            if name == named or not journal.whole or is_of_open_run(path, ended, filed):
                found.append(journal)
        return found

    def _read_state(self) -> bytes | None:
        try:
            return self._state.read()
        except FileNotFoundError:
            return None

    def _set_aside(self) -> list[str]:
        found = {name.partition(SET_ASIDE)[0] for name in names_in(self._folder / RUNS) if SET_ASIDE in name}
        return [f"{name}{SET_ASIDE}*" for name in sorted(found)]

    def _shortened(self, error: CheckpointError) -> str:
        """The first part of the message, without the folder, which the user has named."""
        what = error.message.partition("; ")[0].replace(f"{self._folder}/", "")
        return re.sub(r"^(\S+): (?=(is|was|ends|has|holds|belongs) )", r"\1 ", what)

    # ---- rebuilding

    def rebuild(self) -> None:
        if self._wreck is None:
            self.examine()
        wreck = self._wreck
        if wreck is None:
            return
        with disk_errors(self._folder):
            self._runs.keep_copies(self._to_keep())
            if wreck.findings is None:
                self._clear(wreck)
            else:
                self._replace(wreck.findings)
            for name in wreck.others:
                discard(self._disk, str(self._folder / name))
        history = History(self._folder, self._disk)
        history.add(HistoryEvent(at=now_text(), event="repair", reason=wreck.problem))
        history.close()

    def _replace(self, findings: Findings) -> None:
        old = journals_in(self._folder)
        name = journal_name(self._next_number())
        # Under its name at once and whole: a repair that dies behind it finds records that it knows already.
        replace_file(self._disk, self._folder / name, (line + b"\n" for line in self._lines(findings)))
        findings.checkpoint.journal = Journal(name, (self._folder / name).stat().st_size)
        text = encode_checkpoint(findings.checkpoint)
        self._validate(text, len(findings.records))
        replace_file(self._disk, self._state.path, [text])
        for journal in old:
            discard(self._disk, str(self._folder / journal))

    def _lines(self, findings: Findings) -> Iterator[bytes]:
        return (line for _, line in read_lines(findings.records))

    def _validate(self, text: bytes, count: int) -> None:
        """Read what is about to come into force as a launch will."""
        checkpoint = read_checkpoint(text, self._state.path)
        with JournalLines(self._folder / checkpoint.journal.name) as lines:
            records = Records(lines, checkpoint.journal.length, newest_seq=checkpoint.seq)
            found = sum(1 for _ in records.scan())
        if found != count:
            raise CheckpointError(f"{self._folder}: the new journal has {found} records, not {count}; nothing changed")

    def _clear(self, wreck: Wreck) -> None:
        """The last step of a run that has ended."""
        assert wreck.ended is not None
        self._runs.file(wreck.ended, self._folder / wreck.ended.journal)
        sync_folder(self._disk, self._folder)
        self._state.unlink()
        sync_folder(self._disk, self._folder)

    def _to_keep(self) -> dict[Path, str]:
        files = {self._folder / name: f"{self._aside}.{name}" for name in sorted(journals_in(self._folder))}
        # Not .json: what ends so here is the summary of a run.
        return {self._state.path: f"{self._aside}.state", **files} if self._state.exists() else files

    def _next_number(self) -> int:
        # Also that of a journal which is missing: it may come back.
        named = _named(read_fields(self._wreck.text)) if self._wreck is not None and self._wreck.text else ""
        names = [named, *names_in(self._folder), *(one.journal for one in self._runs.summaries()[:1])]
        return max(map(_number, names)) + 1


def _named(values: dict[str, Any]) -> str:
    """The journal that a state.json with these fields names, or an empty string."""
    journal = values.get("journal")
    name = str(journal.get("name")) if isinstance(journal, dict) else ""
    return name if journal_number(name) is not None else ""


def _number(name: str) -> int:
    return journal_number(name) or 0


def _of_torn(text: bytes | None) -> str:
    """How a state.json that was cut short is described; empty for any other."""
    if not text or text.endswith(b'"\n}\n') or is_json(text):
        return ""
    return f"{STATE} is torn (it ends at byte {len(text.rstrip(bytes(1))):,})"


def _settled(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count and name != "pending"}
