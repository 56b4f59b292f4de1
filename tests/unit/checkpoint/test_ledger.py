from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.checkpoint.ledger import DONE, FAILED, NO_REF, NOT_LISTED, PENDING, SKIPPED, STATE_NAMES, WAITING, Ledger
from agentrun.checkpoint.record import Kind
from agentrun.item import key_digest
from agentrun.money.usage import Usage
from unit.records import make_record


def listed(count: int) -> Ledger:
    ledger = Ledger()
    ledger.set_order(array("I", [ledger.row_of(key_digest(f"k{n}")) for n in range(count)]))
    return ledger


def test_a_key_has_one_row_however_many_there_are() -> None:
    ledger = Ledger()
    rows = [ledger.row_of(key_digest(str(n))) for n in range(5000)]
    assert rows == list(range(5000))
    assert [ledger.find(key_digest(str(n))) for n in range(5000)] == rows
    assert ledger.find(key_digest("other")) == -1
    assert ledger.is_at(4999, key_digest("4999")) and not ledger.is_at(4998, key_digest("4999"))


def test_places_are_those_of_the_records_and_then_of_the_items() -> None:
    ledger = Ledger()
    for ref, (key, index) in enumerate((("a", 1), ("b", 0), ("moved here", 1), ("edited", 2**32 - 2))):
        ledger.apply(ref, make_record(key, index=index))
    places = ledger.places()
    # As long as there may be, and no longer: what a person makes of an index is not to fill the memory.
    assert list(places) == [1, 2] + [NOT_LISTED] * 6
    assert ledger.is_at(1, key_digest("b")) and not ledger.is_at(1, key_digest("a"))
    ledger.set_order(array("I", [3, 0]))
    assert list(ledger.places()) == [3, 0]


def test_the_newest_record_of_a_key_counts() -> None:
    ledger = Ledger()
    row = ledger.apply(0, make_record("a", "failed", failed_launches=2, set_aside=True))
    assert ledger.failed_launches == {row: 2} and ledger.set_aside == {row}
    assert ledger.apply(100, make_record("a", gen=3, hash="00000000000000bb", agent="v2")) == row
    assert (ledger.states[row], ledger.refs[row], ledger.contents[row]) == (DONE, 100, 0xBB)
    assert ledger.generation(row) == 3 and ledger.agent_names[ledger.agents[row]] == "v2"
    assert not ledger.failed_launches and not ledger.set_aside


def test_rows_without_a_place_now_are_not_listed() -> None:
    ledger = Ledger()
    gone, here = ledger.apply(0, make_record("gone", index=4)), ledger.apply(1, make_record("here", index=5))
    ledger.set_order(array("I", [here]))
    assert ledger.positions[gone] == NOT_LISTED and ledger.positions[here] == 0
    assert len(ledger) == 1 and ledger.counts["done"] == 1
    assert ledger.live_refs() == [0, 1]  # its record counts again if it comes back
    ledger.set_order(array("I", [gone, here]))
    assert list(ledger.positions[: ledger.rows]) == [0, 1]


def test_beginning_anew_is_another_generation_and_pending() -> None:
    ledger = Ledger()
    row = ledger.apply(0, make_record("a", "failed", gen=1, failed_launches=3))
    ledger.begin_anew(row)
    assert ledger.generation(row) == 2 and ledger.states[row] == PENDING
    assert ledger.failed_launches == {} and ledger.refs[row] == 0


@settings(deadline=None)  # no timed tests
@given(st.lists(st.tuples(st.integers(0, 19), st.sampled_from(["done", "failed", "skipped", "waiting"])), max_size=60))
def test_settling_one_by_one_is_the_same_as_counting_anew(steps: list[tuple[int, Kind]]) -> None:
    ledger = listed(20)
    for ref, (index, kind) in enumerate(steps):
        ledger.settle(ledger.order[index], ref, make_record(f"k{index}", kind, agent=f"v{ref % 3}"))
    counts, last, versions = dict(ledger.counts), ledger.last_completed, dict(ledger.versions)
    ranges = {state: list(found) for state, found in ledger.ranges.items()}
    ledger.set_order(ledger.order)
    if last != ledger.last_completed:
        # A settled item that waits again is not gone back to while a launch runs.
        assert any(kind == "waiting" for _, kind in steps)
    assert (ledger.counts, ledger.versions) == (counts, versions)
    assert {state: list(found) for state, found in ledger.ranges.items()} == ranges
    states = [ledger.states[row] for row in ledger.order]
    settled = [state in (DONE, FAILED, SKIPPED) for state in states]
    assert ledger.last_completed == ([*settled, False].index(False)) - 1
    assert sum(counts.values()) == 20
    assert [state for state in (PENDING, WAITING) if counts[STATE_NAMES[state]]] == sorted(
        {state for state in states if state in (PENDING, WAITING)}
    )


def test_last_completed_never_passes_an_item_that_is_not_settled() -> None:
    ledger = listed(4)
    for index, expected in ((2, -1), (0, 0), (1, 2), (3, 3)):
        ledger.settle(ledger.order[index], index, make_record(f"k{index}"))
        assert ledger.last_completed == expected


def test_what_an_item_remembers_is_forgotten_when_it_is_done_and_not_before() -> None:
    ledger = listed(2)
    for ref, row in enumerate(ledger.order):
        ledger.remember(row, ref, make_record(f"k{row}", "step", usage=Usage(cost=0.5)))
    ledger.settle(0, 10, make_record("k0", "failed", usage=Usage(cost=0.5)))
    ledger.settle(1, 11, make_record("k1"))
    assert ledger.steps == {0: [0]} and ledger.usages == {0: Usage(cost=0.5)}
    ledger.settle(0, 12, make_record("k0"))
    assert not ledger.steps and not ledger.usages and not ledger.failed_launches


def test_refs_move_with_a_compaction() -> None:
    ledger = listed(3)
    for index, ref in ((0, 10), (2, 50)):
        ledger.settle(ledger.order[index], ref, make_record(f"k{index}"))
    ledger.move_refs(ledger.live_refs(), [0, 20])
    assert list(ledger.refs[: ledger.rows]) == [0, NO_REF, 20]


def test_rows_are_found_by_their_state_in_order() -> None:
    ledger = listed(5)
    ledger.settle(ledger.order[3], 0, make_record("k3", "failed"))
    ledger.settle(ledger.order[1], 0, make_record("k1", "failed"))
    assert list(ledger.rows_in(FAILED)) == [1, 3]
    assert list(ledger.rows_in(FAILED, PENDING)) == [0, 1, 2, 3, 4]
