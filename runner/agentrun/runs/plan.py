"""The plan: what a launch would keep, run, run again and leave out, and why."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrun.checkpoint.ledger import (
    DONE,
    EARLIER,
    FAILED,
    FILES_MISSING,
    NO_REF,
    NOT_LISTED,
    OTHER_PARAMS,
    PENDING,
    RERUN,
    SKIPPED,
    TOO_OLD,
    WAITING,
    Ledger,
)
from agentrun.errors import ItemsError
from agentrun.item import key_digest

if TYPE_CHECKING:
    from agentrun.items.port import Identity, Raw, Source
    from agentrun.runs.only import Selection


EXAMPLES = 3
LAUNCHES_BEFORE_LEFT = 3
_STARTED_OVER = {TOO_OLD: "too_old", OTHER_PARAMS: "other_params", RERUN: "rerun", FILES_MISSING: "files_missing"}


@dataclass(slots=True)
class Plan:
    """How many items are kept, run, run again and left out, with a few keys of each as examples."""

    total: int = 0
    kept: int = 0
    """Done or skipped, and unchanged."""
    moved: int = 0
    """Of those kept: at another position than before."""
    run: int = 0
    """Without a result: not begun, interrupted, or new."""
    changed: int = 0
    """Run again: the content differs from that of the result."""
    kept_changed: int = 0
    """Changed, and kept on purpose (--keep-changed)."""
    again: int = 0
    """Run again because an earlier item's carry has changed."""
    too_old: int = 0
    """Run again: the result is older than the job's max_age."""
    other_params: int = 0
    """Run again: the result was made with other params."""
    rerun: int = 0
    """Run again because that was asked for (--rerun)."""
    redone: int = 0
    """Started over because a person asked for it (redo, --forget-steps)."""
    files_missing: int = 0
    """Run again: files of the result are gone, or are not what they were."""
    kept_old_agent: int = 0
    """Of those kept: made by an older version of the agent, in an earlier run."""
    old_agents: dict[str, int] = field(default_factory=dict)
    """Of those: how many each version made."""
    failed: int = 0
    """Failed before, and retried after the others."""
    left: int = 0
    """Failed before, and left alone."""
    waiting: int = 0
    others: int = 0
    """Of those to run: not in this launch (--only, --pilot)."""
    gone: int = 0
    """Finished items that the source no longer has; in a new run, of those that the last run had."""
    finished: int = 0
    """Finished items on record, gone ones included."""
    first_keys: list[str] = field(default_factory=list)
    examples: dict[str, list[str]] = field(default_factory=dict)
    gone_refs: list[int] = field(default_factory=list)
    contents_now: dict[int, int] = field(default_factory=dict)
    """Of rows that are changed and kept: the content as it is now."""

    def note(self, what: str, key: str) -> None:
        setattr(self, what, getattr(self, what) + 1)
        found = self.examples.setdefault(what, [])
        if len(found) < EXAMPLES:
            found.append(key)

    @property
    def to_run(self) -> int:
        on_purpose = self.too_old + self.other_params + self.rerun + self.redone + self.files_missing
        return self.run + self.changed + self.again + on_purpose + self.failed


class RepeatedKeys:
    """Gives the second item of a key `~2`, the third `~3`, in order, the same at every pass."""

    def __init__(self) -> None:
        self._highest: dict[bytes, int] = {}

    def next_free(self, key: str, is_free: Callable[[bytes], bool]) -> tuple[str, bytes]:
        base = key_digest(key)
        number = self._highest.get(base, 1)
        while True:
            number += 1
            suffixed = f"{key}~{number}"
            digest = key_digest(suffixed)
            if is_free(digest):
                self._highest[base] = number
                return suffixed, digest


def identify_items(source: Source, ledger: Ledger) -> Iterator[tuple[int, str, Raw, Identity]]:
    """Each item's row, key (with the `~2` of a repeat), raw entry and identity; a key that is new gets a row."""
    repeats = RepeatedKeys()
    seen = bytearray(ledger.rows)
    find, add, identify, unique = ledger.find, ledger.add, source.identify, source.unique

    def is_unseen(digest: bytes) -> bool:
        row = find(digest)
        return row < 0 or not seen[row]

    places, is_at = ledger.places(), ledger.is_at
    known = len(places)
    for count, raw in enumerate(source):
        identity = identify(raw)
        key = identity[0]
        digest = key_digest(key)
        # Where it was before, nearly always: that is a look instead of a search.
        if count >= known or (row := places[count]) == NOT_LISTED or not is_at(row, digest):
            row = find(digest)
        if row >= 0 and seen[row]:
            if unique:
                raise _repeated(source, key, count)
            key, digest = repeats.next_free(key, is_unseen)
            row = find(digest)
        if row < 0:
            row = add(digest)
            seen.append(1)
        else:
            seen[row] = 1
        yield row, key, raw, identity


def _repeated(source: Source, key: str, index: int) -> ItemsError:
    first = next((at for at, raw in enumerate(source) if source.identify(raw).key == key), 0)
    return ItemsError(
        f"{source.where(index)}: the key {key!r} stands in {source.where(first)} already; keys are unique"
    )


def list_items(
    source: Source,
    ledger: Ledger,
    *,
    tries_again: Callable[[int], bool],
    keep_changed: bool = False,
    left_out: Set[int] = frozenset(),
    only: Selection | None = None,
) -> Plan:
    """Pass over the source once: which items there are now, and what the records say of them.

    `tries_again(row)` says whether this launch retries a failed item. `left_out` are rows of finished items that
    were gone before: they are not gone a second time. `only` is told of every item.
    """
    plan = Plan(finished=ledger.states.count(DONE) + ledger.states.count(SKIPPED))
    order = array("I")
    states, stamps, contents, refs, positions, origins = (
        ledger.states, ledger.stamps, ledger.contents, ledger.refs, ledger.positions, ledger.origins,
    )  # fmt: skip
    as_number = int.from_bytes
    # Not two of them at a time: with a million items each is 8 MB.
    ledger.glances = glances = array("q")
    glance, unique = source.glance, source.unique
    # A pass over a million: what most of them are is counted here, and noted in the end.
    pending: list[str] = []
    run = kept = 0
    for row, key, raw, (_, content, stamp) in identify_items(source, ledger):
        has_record = refs[row] != NO_REF
        if content is None:
            unchanged = has_record and stamp == stamps[row]
            known = contents[row] if unchanged else as_number(source.content(raw)[:8], "big")
        else:
            known = as_number(content[:8], "big")
        stamps[row] = stamp
        if not has_record or states[row] == PENDING:
            if ledger.steps and row in ledger.steps and known != contents[row]:
                # What it remembers is of another content.
                ledger.begin_anew(row)
            contents[row] = known
            run += 1
            if run <= EXAMPLES:
                pending.append(key)
        elif known != contents[row]:
            # What a person has corrected is never run over.
            if row in ledger.edited or (keep_changed and states[row] in (DONE, SKIPPED)):
                plan.note("kept_changed", key)
                plan.contents_now[row] = known
            else:
                ledger.begin_anew(row)
                contents[row] = known
                plan.note("changed", key)
        elif origins[row] > EARLIER and states[row] in (DONE, SKIPPED):
            ledger.begin_anew(row)
            plan.note(_STARTED_OVER[origins[row]], key)
        elif states[row] in (DONE, SKIPPED):
            kept += 1
            if positions[row] != len(order):
                plan.note("moved", key)
        elif states[row] == WAITING:
            plan.note("waiting", key)
        else:
            plan.note("failed" if tries_again(row) else "left", key)
        order.append(row)
        if only is not None:
            only.note(row, key)
        if unique:
            glances.append(glance(raw))
        if len(order) <= EXAMPLES:
            plan.first_keys.append(key)

    plan.total, plan.run, plan.kept = len(order), run, kept
    if pending:
        plan.examples["run"] = pending
    ledger.set_order(order)
    if ledger.rows > len(order):
        for row, state in enumerate(states):
            if state in (DONE, SKIPPED) and not ledger.is_listed(row):
                if row in left_out:
                    plan.finished -= 1
                    continue
                plan.gone += 1
                if len(plan.gone_refs) < EXAMPLES:
                    plan.gone_refs.append(refs[row])
    return plan


def is_tried_again(ledger: Ledger, row: int, *, agent: str, retry_all: bool = False, carries: bool = False) -> bool:
    """Whether a launch retries a failed item: until it has failed in three, with the same content and agent."""
    # With a carry, trying a failed item means going back to it: see `CarryChain.first_break`.
    if row in ledger.set_aside or carries:
        return False
    if retry_all or ledger.agent_names[ledger.agents[row]] != agent:
        return True
    return ledger.failed_launches.get(row, 0) < LAUNCHES_BEFORE_LEFT


def bucket_of(ledger: Ledger, row: int, tries_again: Callable[[int], bool]) -> str:
    """The count of the plan that an item belongs to."""
    state = ledger.states[row]
    if state == FAILED:
        return "failed" if tries_again(row) else "left"
    return {PENDING: "run", WAITING: "waiting"}.get(state, "kept")


def recount(plan: Plan, key: str, before: str, after: str) -> None:
    """Move an item to another count: its state has changed since it was listed."""
    if before != after:
        setattr(plan, before, getattr(plan, before) - 1)
        if key in (examples := plan.examples.get(before, [])):
            examples.remove(key)
        plan.note(after, key)


def too_much_gone(plan: Plan, *, accepted: int) -> bool:
    """Would the plan leave out more than a tenth of the finished items, beyond what was accepted before?"""
    return (plan.gone - accepted) * 10 > plan.finished


def is_mostly_again(plan: Plan) -> bool:
    """Would the plan run more than a tenth of the finished items again?"""
    return (plan.to_run - plan.run - plan.failed - plan.redone) * 10 > plan.finished
