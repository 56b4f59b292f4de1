"""Attempts on a cluster: an executor whose hosts come and go as the engine gives slots.

**There are never two live attempts of one item.** An attempt is lost only when nothing of its host is alive: that is
confirmed, or its lease has ended (`lease.py`). A launch first ends what an earlier launch of the run has left, on every
worker, by the mark that all hosts of the run carry; for places that the checkpoint names and that did not answer it
waits as long as a lease. A place is named in a checkpoint on disk before its first attempt is sent.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import ENGINE_LOST, Failure
from agentrun.errors import AgentError, AgentrunError, UsageError
from agentrun.executors.cluster.archive import ANY_DATE, ANY_RUN, pack_job
from agentrun.executors.cluster.fence import fence, mismatch, sight, sweep
from agentrun.executors.cluster.hello import check_can_travel, make_hello
from agentrun.executors.cluster.link import HostLink, Welcome
from agentrun.executors.cluster.port import Engine, HostSpec
from agentrun.executors.cluster.ranking import Ranking
from agentrun.executors.port import Elastic, Joined, Setting
from agentrun.items.files import FilesSource

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job

WITHOUT_SLOT_SECONDS, ANSWER_SECONDS = 60.0, 10.0
"""Without a slot for so long, and no answer of the engine in so long: the engine is lost."""
CLOSE_SECONDS = 20.0
REST_SECONDS = 60.0
SHORT_SECONDS = 1.0
"""Of attempts that take less, one is sent ahead for each slot: the way there and back would be a part of their time."""
NONCE = "seen-by"


class ClusterExecutor(Elastic):
    """Runs attempts on the hosts of an engine; `name` is what people call it."""

    def __init__(
        self,
        job: Job,
        agent: Agent,
        setting: Setting,
        engine: Engine,
        *,
        without_slot_seconds: float = WITHOUT_SLOT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        own_sight: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`own_sight` is the value of `fence.sight` here, unless a test gives another."""
        assert job.engine is not None
        check_can_travel(agent, job.engine, job.base)
        self._job, self._agent, self._setting = job, agent, setting
        self._spec = job.engine
        self._engine = engine
        self._without_slot_seconds, self._answer_seconds = without_slot_seconds, answer_seconds
        self._own_sight, self._clock = own_sight or sight(), clock
        self._joined: Joined
        self._links: set[HostLink] = set()
        self._ranking = Ranking()
        self._waiting: deque[asyncio.Future[HostLink | None]] = deque()
        """Attempts that wait for a host; None tells them to go back."""
        self._wheres: dict[int, str] = {}
        self._named: dict[str, asyncio.Future[None]] = {}
        """By place: done when a checkpoint on disk names it."""
        self._left: dict[str, HostLink] = {}
        """By item: where its latest attempt runs, or was cancelled."""
        self._held = asyncio.Event()
        self._error: BaseException | None = None
        """Why nothing can be run at all."""
        self._archive: asyncio.Task[bytes] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._nonce = (Path(setting.folder or ".") / NONCE, secrets.token_hex(16))
        self._seconds: float | None = None
        """How long attempts take, on the average of the latest."""
        self._is_connected = self._has_sent = False
        self._is_alone = False
        self._is_told = False

    # ---- for the launch

    @property
    def most(self) -> int:
        return self._job.concurrency * (2 if self._may_send_ahead else 1)

    @property
    def width(self) -> int:
        slots = sum(link.tube.slots for link in self._links if link.is_usable)
        # One waits for a host even if there is none: it is the one that learns why.
        return max(1, min(slots, self._job.concurrency) * self._depth)

    @property
    def _may_send_ahead(self) -> bool:
        """Not where it matters what has begun: an attempt that is lost is charged to a budget, begun or not."""
        job = self._job
        is_counted = job.rate is not None or job.tokens is not None
        budgets = (job.budget, job.token_budget, job.item_budget, job.item_token_budget)
        has_budget = any(one is not None for one in budgets)
        return not (job.carry or is_counted or has_budget)

    @property
    def _depth(self) -> int:
        """How many attempts a slot has: the one that runs, and the next."""
        is_short = self._seconds is not None and self._seconds < SHORT_SECONDS
        return 2 if is_short and self._may_send_ahead else 1

    @property
    def is_alone(self) -> bool:
        return self._is_alone

    def where(self, slot: int) -> str:
        return self._wheres.get(slot, "")

    def join(self, joined: Joined) -> None:
        self._joined = joined

    def hold(self) -> None:
        self._held.set()
        self._release(None)
        for link in self._links:
            link.send("recall")

    def resume(self) -> None:
        self._held.clear()

    # ---- beginning and ending

    async def connect(self) -> None:
        self._is_connected = await self._unless_held(self._engine.connect())

    async def start(self) -> None:
        if not self._is_connected:
            return
        path, word = self._nonce
        path.write_text(word)
        if caution := self._engine.caution(has_secrets=bool(self._setting.environ or self._job.needs_env)):
            self._joined.warn(caution)
        await self._fence()
        if self._held.is_set():
            return
        self._tasks = [asyncio.ensure_future(one) for one in (self._welcome_hosts(), self._watch())]

    async def _unless_held(self, doing: Coroutine[Any, Any, None]) -> bool:
        """Do something that may take long. False if it was broken off, because the launch stops."""
        task, held = asyncio.ensure_future(doing), asyncio.ensure_future(self._held.wait())
        try:
            await asyncio.wait({task, held}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
            return task.done()
        finally:
            held.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _fence(self) -> None:
        """End what an earlier launch of this run has left. Nothing may begin before."""
        use = self._joined.use
        found = await self._engine.everywhere(fence, use.mark)
        answered = {facts["place"] for facts in found.values() if isinstance(facts, Mapping)}
        if silent := set(use.hosts) - answered:
            seconds = use.longest_seconds
            self._joined.warn(
                f"{len(silent)} of the machines that the last launch used do not answer; waiting {seconds:g} s until "
                f"nothing can be running there"
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._held.wait()
            if self._held.is_set():
                return  # what may be alive stays named in the checkpoint
        use.hosts, use.lease_seconds = [], self._spec.lease_seconds
        self._is_alone = True
        for worker, facts in found.items():
            if isinstance(facts, ModuleNotFoundError):
                raise UsageError(f"{worker}: agentrun cannot be imported there ({facts}); install agentrun-batch there")
            if isinstance(facts, Mapping) and (why := mismatch(dict(facts))):
                raise UsageError(f"{worker}: {why}")

    async def rest(self) -> None:
        for link in self._links:
            link.send("rest")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for link in self._links:
            link.close()
        # Those that were given up end by themselves.
        if closing := [link.gone for link in self._links if not link.is_broken]:
            await asyncio.wait(closing, timeout=CLOSE_SECONDS)
        for link in list(self._links):
            if link.mark and not link.gone.done() and link.sight == self._own_sight:
                # If the cluster ends with the launch, nobody else would end it and remove its scratch folder.
                await asyncio.to_thread(sweep, link.mark, link.scratch)
            await link.tube.close()
        await self._engine.close()
        with suppress(OSError):
            self._nonce[0].unlink()

    # ---- hosts

    async def _welcome_hosts(self) -> None:
        welcome = Welcome(
            hello=make_hello(self._job, self._agent, environ=self._setting.environ, nonce=self._nonce),
            base=self._job.base,
            folder=self._folder,
            check=lambda facts: mismatch(dict(facts)),
            ready=self._use,
            refuse=self._refuse,
            took=self._note_seconds,
            broke=self._note_break,
            failed=self._rest,
        )
        use = self._joined.use
        spec = HostSpec(use.mark, use.lease_seconds)
        try:
            async for tube in self._engine.tubes(self._job.concurrency, spec, self._change_slots):
                link = HostLink(tube, welcome, lease_seconds=use.lease_seconds, clock=self._clock)
                self._links.add(link)
                link.gone.add_done_callback(partial(self._lose, link))
        except AgentrunError as error:
            self._fail(error)

    def _use(self, link: HostLink) -> None:
        self._ranking.put(link)
        self._changed()

    def _change_slots(self) -> None:
        for link in self._links:
            if link.is_usable:
                self._ranking.put(link)
        self._changed()

    def _lose(self, link: HostLink, _: asyncio.Future[str]) -> None:
        self._links.discard(link)
        self._ranking.drop(link)
        self._tasks.append(asyncio.ensure_future(link.tube.close()))
        self._changed()

    def _note_break(self, link: HostLink, why: str) -> None:
        self._ranking.drop(link)
        if link.load and not self._held.is_set():
            seconds = self._joined.use.longest_seconds
            items = "1 item" if link.load == 1 else f"{link.load} items"
            self._joined.warn(f"{link.tube.where}: {why}; {items} will be retried within {seconds:g} s")
        if link.mark:
            self._tasks.append(asyncio.ensure_future(self._end_host(link)))
        self._changed()

    async def _end_host(self, link: HostLink) -> None:
        """Not to wait for its lease, where somebody sees its processes: this one, or another host of its machine."""
        if link.sight == self._own_sight:
            await asyncio.to_thread(sweep, link.mark, link.scratch)
            link.confirm()
            return
        others = (one for one in self._links if one is not link and one.sight == link.sight and one.is_usable)
        if (other := next(others, None)) is not None and await other.sweep(link):
            link.confirm()

    def _rest(self, link: HostLink, why: str) -> None:
        """Something is wrong with the machine, such as a full disk. It would attract all items, since each of them
        ends there at once."""
        if not link.rests:
            link.rests = True
            self._joined.warn(f"{link.tube.where}: {why}; nothing more is started there for {REST_SECONDS:g} s")
            self._ranking.drop(link)
            asyncio.get_running_loop().call_later(REST_SECONDS, self._wake, link)
            self._changed()

    def _wake(self, link: HostLink) -> None:
        link.rests = False
        if link.is_usable:
            self._use(link)

    def _refuse(self, link: HostLink, why: str, traceback: str) -> None:
        message = f"{link.tube.where}: {why}"
        link.close()
        if self._has_sent:
            self._joined.warn(f"{message}; it is not used")
        else:
            self._fail(AgentError(message, traceback=traceback))

    async def _folder(self) -> bytes:
        if self._archive is None:
            self._archive = asyncio.ensure_future(asyncio.to_thread(self._pack))
        try:
            return await asyncio.shield(self._archive)
        except AgentrunError as error:
            self._fail(error)
            return b""

    def _pack(self) -> bytes:
        job = self._job
        sources = [FilesSource(job.base, one) for one in job.items.patterns] if job.items.kind == "files" else []
        of_any = {"run_id": ANY_RUN, "date": ANY_DATE}
        return pack_job(
            job.base,
            outputs=(job.output_path(**of_any), job.report_path(**of_any)),
            secret=job.base / job.env_file if job.env_file else None,
            only=self._spec.send,
            is_item=lambda name: any(source.lists(name) for source in sources),
        )

    def _note_seconds(self, seconds: float | None) -> None:
        if seconds is not None:
            before = self._depth
            self._seconds = seconds if self._seconds is None else 0.9 * self._seconds + 0.1 * seconds
            if self._depth != before:
                self._changed()

    # ---- attempts

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        link = await self._host()
        if link is None:
            return Outcome("cancelled")
        if isinstance(link, Outcome):
            return link
        try:
            if link.place not in self._named or not self._named[link.place].done():
                await asyncio.shield(self._name(link.place))
            await self._wait_for_earlier(attempt.item.key)
            self._has_sent = True
            self._left[attempt.item.key] = link
            self._wheres[attempt.slot] = link.tube.where
            outcome = await link.run(attempt, channel)
            del self._left[attempt.item.key]
            return outcome
        finally:
            self._ranking.give_back(link)
            self._wheres.pop(attempt.slot, None)
            self._serve_waiting()

    async def _wait_for_earlier(self, key: str) -> None:
        """For the end of an attempt of the item that was cancelled on a host that had been given up."""
        if (earlier := self._left.pop(key, None)) is not None and earlier.is_broken:
            await asyncio.shield(earlier.gone)

    @property
    def places_left(self) -> list[str]:
        return sorted({link.place for link in self._links if link.is_broken and link.place})

    def _name(self, place: str) -> asyncio.Future[None]:
        """Done when a checkpoint on disk names the place: if this launch dies, the next one must know where to look."""
        if place not in self._named:
            self._joined.use.hosts = [*self._joined.use.hosts, place]
            self._named[place] = asyncio.ensure_future(self._joined.commit())
        return self._named[place]

    async def _host(self) -> HostLink | Outcome | None:
        """A host with a free slot, which is taken; None if nothing is begun any more."""
        if self._error is None and not self._held.is_set() and (link := self._ranking.take(self._depth)) is not None:
            return link
        if self._error is None and not self._held.is_set():
            waiting: asyncio.Future[HostLink | None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            try:
                found = await waiting
            except asyncio.CancelledError:
                if waiting.done() and not waiting.cancelled() and (taken := waiting.result()) is not None:
                    self._ranking.give_back(taken)
                    self._serve_waiting()
                raise
            if found is not None:
                return found
        if self._error is None:
            return None
        if isinstance(self._error, EngineLost):
            return Outcome("lost", failure=Failure("lost", str(self._error), code=ENGINE_LOST))
        raise self._error

    def _changed(self) -> None:
        self._serve_waiting()
        self._joined.changed()

    def _serve_waiting(self) -> None:
        while self._waiting and not self._held.is_set():
            if self._waiting[0].done():
                self._waiting.popleft()
            elif (link := self._ranking.take(self._depth)) is not None:
                self._waiting.popleft().set_result(link)
            else:
                return

    def _release(self, result: None) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(result)

    # ---- the engine

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._release(None)

    async def _watch(self) -> None:
        """Notice that no slot comes: the engine has none to give, or is gone."""
        since = self._clock()
        while True:
            await asyncio.sleep(min(1.0, self._without_slot_seconds))
            if any(link.is_usable for link in self._links):
                since, self._is_told = self._clock(), False
            elif self._clock() - since >= self._without_slot_seconds:
                since = self._clock()
                await self._ask_engine()

    async def _ask_engine(self) -> None:
        try:
            async with asyncio.timeout(self._answer_seconds):
                found = await self._engine.describe()
        except Exception as error:
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            self._fail(EngineLost(f"{self._engine.name} does not answer any more ({why})"))
            return
        if not self._is_told:
            self._is_told = True
            needs = ", ".join(f"{name} = {number:g}" for name, number in self._spec.resources.items())
            asked = f" with {needs}" if needs else ""
            self._joined.warn(
                f"{self._engine.name} has given no slot{asked} for {self._without_slot_seconds:g} s ({found}); still "
                f"waiting"
            )


class EngineLost(Exception):
    """The engine is gone."""
