"""Crashes of a second run, some of whose items changed, are new or gone, in each form of results: the next launch ends
with the same bytes, runs nothing twice, and touches nothing of anybody else's."""

from __future__ import annotations

import pytest

from crash.disks import RecordingDisk
from crash.forms import Form, TwoRuns
from crash.harness import run_apart
from crash.inspection import distinct_states, moments
from crash.model import Model, fingerprint
from crash.workload import scratch

FORMS: tuple[Form, ...] = ("jsonl", "csv", "folder")


@pytest.mark.parametrize("form", FORMS)
def test_a_run_that_dies_at_any_call_to_the_disk_is_completed_by_the_next_launch(form: Form) -> None:
    found = run_apart("forms", {"form": form})
    assert not found["faults"], found["faults"]
    print(found["kills"], "kills")
    assert found["kills"] > 50 and found["kills"] == found["runs"]


@pytest.mark.parametrize("form", FORMS)
def test_after_a_power_cut_at_any_moment_the_next_launch_completes_the_run(form: Form) -> None:
    with scratch() as path:
        runs = TwoRuns(path / "work", form)
        disk = RecordingDisk(runs.base, Model.of(runs.start))
        runs.show(runs.start)
        assert runs.launch(disk, disk.add).exit_code == 0
        runs.check_complete()
        states = distinct_states(disk.log, Model.of(runs.start), brief=True)
        killed = {fingerprint(state): state for state in map(Model.after_kill, moments(disk.log, Model.of(runs.start)))}
        seen: set[frozenset[tuple[str, bytes | None]]] = set()
        for state in [*killed.values(), *(state for state, _, _ in states.values())]:
            # Of those that differ only outside of what the next launch decides by, one is enough.
            kind = frozenset(item for item in state.items() if not item[0].endswith((".tmp", "log.jsonl", "lock")))
            if kind in seen:
                continue
            seen.add(kind)
            runs.show(state)
            runs.check()
            assert runs.launch().exit_code == 0
            runs.check_complete()
        print(len(states), "states,", len(seen), "recovered")
        assert len(seen) > 20
