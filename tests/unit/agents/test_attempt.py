"""What another process is told of an attempt, and what it reports back, is the same after the crossing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrun.agents.agent import Agent
from agentrun.agents.attempt import Attempt, Ended, Outcome
from agentrun.agents.failure import Failure
from agentrun.agents.loading import AgentReference
from agentrun.item import Item
from agentrun.job.job import ItemsSpec, Job


def crossed(form: dict[str, Any]) -> Any:
    return json.loads(json.dumps(form))


@pytest.mark.parametrize(
    "item",
    [
        Item(0, "a", {"n": [1, 2**70, None]}),
        Item(1, "b.txt", path=Path("/docs/b\udcff.txt")),
        Item(2, "a line", line="a line \ud800"),
    ],
)
def test_an_attempt_crosses_as_json(item: Item) -> None:
    attempt = Attempt(
        item=item,
        generation=2,
        launch=3,
        number=4,
        run_id="r",
        series="s",
        params={"customer": "acme"},
        carry=["x"],
        timeout_seconds=1.5,
        log_path=Path("/jobs/logs/slot-0.log"),
        folder="/jobs/work",
    )
    found = Attempt.from_json(crossed(attempt.as_json()))
    assert found == attempt
    assert found.item.path == item.path and found.work == attempt.work
    assert Attempt.from_json({**crossed(attempt.as_json()), "of a later version": 1}) == attempt


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("done", b'{"a":1}', made_files=True),
        Outcome("failed", failure=Failure("exception", "no", types=("a.B", "builtins.Exception"), status=429)),
        Outcome("waiting"),
        Outcome("lost", failure=Failure("lost", "the worker died")),
    ],
)
def test_an_outcome_crosses_as_json_with_its_output_beside_it(outcome: Outcome) -> None:
    ended = Ended.of(outcome, attempt_id="9f86d081884c7d65", no=3, ends=True)
    assert list(ended.as_json()) == ["type", "id", "no", "ends", "kind", "failure", "made_files"]
    assert Ended.from_json(crossed(ended.as_json())) == ended
    assert ended.outcome(outcome.output) == outcome


def test_an_agent_crosses_by_reference(tmp_path: Path) -> None:
    agent = Agent(
        kind="class",
        is_async=False,
        wants_ctx=True,
        target=object,
        reference="agent.py:Research",
        fingerprint="f",
        isolation="process",
    )
    items = ItemsSpec(kind="lines", pattern="-")
    job = Job(name="j", base=tmp_path, items=items, params={}, output="o.jsonl", carry=True)
    reference = agent.reference_for(job)
    assert AgentReference.from_json(crossed(reference.as_json())) == reference
    assert (reference.is_class, reference.wants_ctx, reference.carries) == (True, True, True)
    assert reference.base == str(tmp_path) and reference.sys_path
    with pytest.raises(ValueError, match="missing required field"):
        AgentReference.from_json({"base": "/"})
