"""Histories of one job: starts, kills, items that come, change and go, and what people say of them.

A state machine for Hypothesis. Before each launch the preview says what it would do; the launch must do that. A second
book is kept here, apart from the runner's own: what each item's result was made of, and which of them somebody gave a
word for. It says which calls of the agent were owed.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import orjson
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.messages import Answered, Ask
from agentrun.checkpoint.message import EditMessage, RedoMessage
from agentrun.checkpoint.summary import last_finished
from agentrun.errors import AgentrunError, ItemsError, UsageError
from agentrun.events import Planned
from agentrun.job.options import Options
from agentrun.launch.preview import Prospect, plan_launch
from agentrun.people import desk
from agentrun.people.desk import Selection
from agentrun.runs.plan import Plan
from agentrun.system.disk import Disk
from agentrun.values.units import parse_allowance
from agentrun.views.finding import KnownJob
from agentrun.views.listing import open_listing
from unit.launch.bench import Died, World, dies_after, failing

KEYS = [f"k{number}" for number in range(6)]
ONE_OF_THEM = st.sampled_from(KEYS)
RERUN = st.sampled_from([None, None, None, "old-agent", "all"])
HISTORIES = 100
"""How many are tried with one seed."""
COUNTS = [one.name for one in fields(Plan) if one.type == "int"]


class Hasty(Disk):
    """Nobody cuts the power here, so nothing waits for the disk."""

    def fsync(self, fd: int) -> None:
        pass


@dataclass(frozen=True)
class Made:
    """What a result was made of: the item's content, the agent's version, the params."""

    value: int
    agent: str
    tone: str


class Histories(RuleBasedStateMachine):
    """One job, from its first start on."""

    def __init__(self) -> None:
        super().__init__()
        self._closing = ExitStack()
        self.values: dict[str, int] = {}
        """The items now, in their order, with what is in them."""
        self.version = 1
        self.bad: set[str] = set()
        """Items at which the agent fails."""
        self.curious: set[str] = set()
        """Items at which the agent asks."""
        self.made: dict[str, Made] = {}
        """What the results are made of that the next launch would find."""

    @initialize(
        kind=st.sampled_from(["memory", "memory", "memory", "folder"]),
        concurrency=st.sampled_from([1, 1, 3]),
        allowed=st.sampled_from(["0", "100%"]),
        keys=st.sets(ONE_OF_THEM, min_size=2),
    )
    def begin(self, kind: str, concurrency: int, allowed: str, keys: set[str]) -> None:
        self.world = World(Path(self._closing.enter_context(tempfile.TemporaryDirectory())), kind)
        self.world.disk = Hasty()
        self.world.job = replace(
            self.world.job,
            file=self.world.base / "job.toml",
            concurrency=concurrency,
            retries=0,
            allow_failures=parse_allowance(allowed),
            stop_after_failures=0,
            crash_limit=0,
        )
        self.values = dict.fromkeys(sorted(keys), 0)
        self._write()

    def teardown(self) -> None:
        self._closing.close()

    # ---- the items and the agent

    @rule(key=ONE_OF_THEM, value=st.integers(0, 2))
    def put(self, key: str, value: int) -> None:
        """A new item, or another content."""
        self.values[key] = value
        self._write()

    @rule(key=ONE_OF_THEM)
    def remove(self, key: str) -> None:
        self.values.pop(key, None)
        self._write()

    @rule()
    def turn_round(self) -> None:
        self.values = dict(reversed(self.values.items()))
        self._write()

    @rule(by=st.integers(1, 2))
    def edit_agent(self, by: int) -> None:
        self.version = (self.version + by) % 3

    @rule(keys=st.sets(ONE_OF_THEM, max_size=2), asked=st.sets(ONE_OF_THEM, max_size=1))
    def be_difficult(self, keys: set[str], asked: set[str]) -> None:
        self.bad, self.curious = keys, asked

    @rule(age=st.sampled_from([None, 0.0, 3600.0]))
    def set_max_age(self, age: float | None) -> None:
        self.world.job = replace(self.world.job, max_age_seconds=age)

    @rule(tone=st.sampled_from(["kind", "stern"]))
    def set_params(self, tone: str) -> None:
        self.world.job = replace(self.world.job, params={"tone": tone})

    def _write(self) -> None:
        self.world.items(*self.values, **self.values)

    # ---- people

    @rule(key=ONE_OF_THEM)
    def redo(self, key: str) -> None:
        with suppress(UsageError, ItemsError):
            desk.redo(self._known(), Selection(items=[key]), by="reviewer")

    @rule(key=ONE_OF_THEM, text=st.sampled_from(["by hand", "corrected"]))
    def edit(self, key: str, text: str) -> None:
        with suppress(UsageError, ItemsError):
            desk.edit(desk.to_edit(self._known(), Selection(items=[key])), text, by="reviewer")

    @rule(key=ONE_OF_THEM)
    def skip(self, key: str) -> None:
        with suppress(UsageError, ItemsError):
            desk.skip(self._known(), Selection(items=[key]), by="reviewer")

    @rule(yes=st.booleans())
    def answer(self, yes: bool) -> None:
        with suppress(UsageError, ItemsError):
            desk.answer_all(self._known(), yes=yes, by="reviewer")

    def _known(self) -> KnownJob:
        return KnownJob("job", self.world.store(), self.world.job)

    # ---- launches

    @rule(
        rerun=RERUN,
        fresh=st.sampled_from([False, False, False, True]),
        limit=st.sampled_from([None, None, 1, 2]),
        failed=st.booleans(),
        allow_gone=st.sampled_from([True, True, False]),
    )
    def start(self, **asked: Any) -> None:
        options = Options(wait_seconds=0, **asked)
        try:
            prospect = self._preview(options)
        except AgentrunError as error:
            self._is_refused(asked, error.message)
            return
        if prospect.refusal:
            self._is_refused(asked, prospect.refusal)
            return
        before = self._look()
        summary = self.world.go(self._agent, agent=self._fingerprint, **asked)
        ran, planned = list(self.world.ran), [one for one in self.world.events if isinstance(one, Planned)]
        if prospect.nothing is not None:
            assert summary.nothing_to_do and not ran and not planned
            assert (summary.kept, summary.kept_old_agent) == (prospect.nothing.kept, prospect.nothing.kept_old_agent)
        else:
            assert [(counts_of(one), one.notes) for one in planned] == [
                (counts_of(prospect.planned), prospect.planned.notes)
            ]
            to_run = prospect.planned.plan.to_run
            assert len(ran) == (to_run if options.limit is None else min(to_run, options.limit))
        self._check_calls(ran, before, options)
        self._keep_book(ran, before)
        if summary.exit_code == 0:
            self._check_end()

    @rule()
    def start_at_night(self) -> None:
        """As cron does: without a word."""
        self.start(rerun=None, fresh=False, limit=None, failed=False, allow_gone=True)

    @rule(rerun=RERUN, fresh=st.sampled_from([False, False, True]), commits=st.integers(0, 8), landed=st.booleans())
    def kill(self, commits: int, landed: bool, **asked: Any) -> None:
        """A launch that dies at one of its commits; some end before."""
        before = self._look()
        self.world.hook = dies_after(commits, landed=landed)
        try:
            self.world.go(self._agent, agent=self._fingerprint, allow_gone=True, **asked)
        except Died:
            pass
        except AgentrunError:
            return
        finally:
            self.world.hook = lambda store: None
        ran = list(self.world.ran)
        self._check_calls(ran, before, Options(**asked))
        self._keep_book(ran, before)

    @property
    def _fingerprint(self) -> str:
        return f"v{self.version}"

    @property
    def _tone(self) -> str:
        return str(self.world.job.params.get("tone", ""))

    def _preview(self, options: Options) -> Prospect:
        return plan_launch(self.world.job, self.world.store(), agent=self._fingerprint, options=options)

    def _is_refused(self, asked: dict[str, Any], reason: str) -> None:
        try:
            self.world.go(self._agent, agent=self._fingerprint, **asked)
        except AgentrunError as error:
            assert error.message == reason and not self.world.ran
        else:
            raise AssertionError(f"the plan says that this would be refused: {reason}")

    async def _agent(self, attempt: Attempt, channel: Channel) -> Outcome:
        key, value = attempt.item.key, attempt.item.data["v"]
        if key in self.curious and not isinstance(await channel(Ask("Shall I?", {})), Answered):
            return Outcome("waiting")
        return failing() if key in self.bad else Outcome("done", orjson.dumps(value))

    # ---- the second book

    def _look(self) -> Look:
        """What is on disk now."""
        store = self.world.store()
        with store.reader() as reader:
            # Not of a run that was given up: its results do not count.
            last = reader.checkpoint or last_finished(reader.summaries)
            unfinished, series = reader.checkpoint is not None, reader.series_of(last.run_id) if last else ""
        messages = [one.message for one in store.inbox()]
        with open_listing(store) as listing:
            views = {view.key: view for view in listing.items()}
        return Look(
            unfinished,
            series or "",
            {key: (view.state, view.record.seq if view.record is not None else 0) for key, view in views.items()},
            edited := (
                {key for key, view in views.items() if view.record is not None and view.record.edited}
                | {one.key for one in messages if isinstance(one, EditMessage)}
            ),
            edited | {key for key, view in views.items() if view.record is not None and view.record.by},
            {one.key for one in messages if isinstance(one, RedoMessage)},
        )

    def _check_calls(self, ran: list[str], before: Look, options: Options) -> None:
        """No finished item is called again without a word."""
        assert len(ran) == len(set(ran))
        is_new = not before.is_unfinished
        for key in ran if not options.fresh else ():
            made = self.made.get(key)
            if made is None or key in before.redone:
                continue
            is_changed = made.value != self.values[key]
            assert key not in before.edited, f"{key} was edited by a person"
            assert is_changed or key not in before.by_hand, f"{key} was skipped by a person"
            word = (
                is_changed
                or options.rerun == "all"
                or (options.rerun == "old-agent" and made.agent != self._fingerprint)
                or (is_new and (made.tone != self._tone or self.world.job.max_age_seconds == 0))
            )
            assert word, f"{key} was called again"

    def _keep_book(self, ran: list[str], before: Look) -> None:
        now = self._look()
        if now.series != before.series:
            self.made.clear()
        for key, (state, seq) in now.states.items():
            if state not in ("done", "skipped"):
                self.made.pop(key, None)
            elif before.states.get(key) != (state, seq) and key in self.values:
                assert key in ran or key in now.by_hand
                self.made[key] = Made(self.values[key], self._fingerprint, self._tone)
        if not now.is_unfinished:
            # A finished run hands on the items that it had.
            self.made = {key: made for key, made in self.made.items() if key in self.values}

    def _check_end(self) -> None:
        """The run is finished: the results are those of the items as they are now, and nothing is left to do."""
        now = self._look()
        results = {line["key"]: line["output"] for line in self.world.results()}
        assert list(results) == [key for key in self.values if now.states[key][0] == "done"]
        assert {key for key, output in results.items() if output != self.values[key]} <= now.by_hand
        is_settled = all(state != "failed" for state, _ in now.states.values()) and not self.world.store().inbox()
        if is_settled and self.world.job.max_age_seconds != 0:
            prospect = self._preview(Options())
            plan = prospect.planned.plan
            assert prospect.is_nothing and (plan.gone, plan.moved, plan.to_run) == (0, 0, 0)


@dataclass(frozen=True)
class Look:
    """What is on disk before or after a launch."""

    is_unfinished: bool
    series: str
    states: dict[str, tuple[str, int]]
    """State and number of each item's newest record."""
    edited: set[str]
    """Items whose output a person has edited, or is about to."""
    by_hand: set[str]
    """These, and items that a person has skipped."""
    redone: set[str]
    """Items that a person wants to have redone."""


def history_settings(histories: int, *, derandomize: bool = False) -> settings:
    return settings(
        max_examples=histories,
        stateful_step_count=25,
        derandomize=derandomize,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def try_histories(chance: random.Random) -> int:
    """Histories by chance, for the long tests: how many were tried."""
    machine = seed(chance.getrandbits(64))(type("Histories", (Histories,), {}))
    run_state_machine_as_test(machine, settings=history_settings(HISTORIES))
    return HISTORIES


def counts_of(planned: Planned) -> dict[str, int]:
    return {name: getattr(planned.plan, name) for name in (*COUNTS, "to_run")}
