"""The library's front door: `run` and `arun`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from agentrun.checkpoint import summary as checkpoint
from agentrun.errors import JobError, StaleResults
from agentrun.events import Watcher, Watchers, ignore
from agentrun.job.fields import ONE_LAUNCH, RUN, Layer
from agentrun.job.options import read_options
from agentrun.launch.launch import Launch
from agentrun.store.port import Catalogue, Store
from agentrun.summary import Summary
from agentrun.values.text import clean
from agentrun.views.finding import KnownJob
from agentrun.views.giving_up import given_up
from agentrun.views.listing import read_items
from agentrun.watching import open_view

_TOP_VALUES = ["output", "report", "version", "isolation", "env_file", "needs_env", "carry", "params", "prices"]
_TOP_VALUES += ["engine"]
_OPTIONS = ["fresh", "rerun", "limit", "only", "pilot", "failed", "allow_gone"]
_OPTIONS += ["accept_edits", "overwrite", "forget_steps", "adopt"]


def run(
    agent: Callable[..., Any] | str,
    *,
    items: Iterable[Any],
    name: str | None = None,
    store: Store | str | None = None,
    state_dir: str | None = None,
    on_event: Watcher = ignore,
    key: str | None = None,
    progress: bool | None = None,
    **values: Any,
) -> Summary:
    """Run `agent` over `items`, resuming the unfinished run of this name if there is one.

    After a finished run, results of items that are as they were are kept; the others run. `fresh=True` runs everything,
    `rerun="old-agent"` also the results of older versions of the agent. Where those are kept, the warning
    `StaleResults` says how many.

    `items` are dicts, texts (`str`) or files (`Path`). Further values are those of a job file (`concurrency`,
    `output`, `params`, `timeout`, `retries`, `allow_failures`, `isolation`, `carry` …) and `fresh`, `rerun`, `limit`,
    `only` (a pattern for keys, or several: the other items stay pending), `pilot` (a number of items to run first),
    `failed`, `overwrite`, `allow_gone`, `accept_edits`, `forget_steps`. `until` and `max_time` count for this launch.
    None means not given; `budget="none"` removes that of an earlier launch. Works in scripts, in notebooks and in a
    running event loop.

    `engine` is a cluster to run on, such as `"dask"`, or a dict with the keys of the table `engine` in a job file.

    `store` is the address of a store, such as `postgres://ada@db/agents`, or a store such as `MemoryStore`; by default
    the state is kept in the folder `.agentrun`.

    `progress` shows the launch at work on standard error; by default it does so on a terminal and in a notebook.
    """
    launching = _Launching(agent, items, name, store, state_dir, on_event, key, progress, values)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        summary = launching.run_here()
    else:
        summary = launching.run_in_thread()
    _warn_of_old_agents(summary)
    return summary


async def arun(
    agent: Callable[..., Any] | str,
    *,
    items: Iterable[Any],
    name: str | None = None,
    store: Store | str | None = None,
    state_dir: str | None = None,
    on_event: Watcher = ignore,
    key: str | None = None,
    progress: bool | None = None,
    **values: Any,
) -> Summary:
    """`run`, on the running event loop. Cancelling it stops the launch, which can be resumed."""
    launching = _Launching(agent, items, name, store, state_dir, on_event, key, progress, values)
    summary = await launching.run_cancellable()
    _warn_of_old_agents(summary)
    return summary


def _warn_of_old_agents(summary: Summary) -> None:
    """Where no plan is shown: results of an older version of the agent are among those that were kept."""
    if count := summary.details.get("kept_old_agent", 0):
        kept = "1 result is" if count == 1 else f"{count:,} results are"
        again = 'run them again with rerun="old-agent"'
        # At the caller of `run` or `arun`.
        warnings.warn(f"{summary.job}: {kept} by an older version of the agent; {again}", StaleResults, stacklevel=3)


class _Only(Catalogue):
    """A store that the caller brought: what is kept with the job's run is there, whatever the state folder has."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> list[str]:
        return []

    def store(self, name: str) -> Store:
        return self._store


def _opener(store: Store | str | None) -> Callable[..., Catalogue]:
    """From a state folder to the jobs seen from there; `store` is a store, or the address of one."""
    from agentrun.job.address import read_address
    from agentrun.store.jobs import Jobs

    if isinstance(store, Store):
        return lambda root, asked=None, /: _Only(store)
    # A script may read the password from where it likes: it is written nowhere.
    given = read_address(store, base=Path.cwd(), where="store", may_have_secret=True) if store else None
    return lambda root, asked=None, /: Jobs(root, given)


class _Launching:
    """One call of `run` or `arun`."""

    def __init__(
        self,
        agent: Callable[..., Any] | str,
        items: Iterable[Any],
        name: str | None,
        store: Store | str | None,
        state_dir: str | None,
        on_event: Watcher,
        key: str | None,
        progress: bool | None,
        values: dict[str, Any],
    ) -> None:
        from agentrun.agents.agent import LoadedEnough, agent_from_function, load_agent, loading_in_worker
        from agentrun.job.address import hide_secrets
        from agentrun.job.opening import agent_environment, open_job
        from agentrun.views.finding import address_of, check_one_place, store_of

        if loading_in_worker():
            # A script without `if __name__ == "__main__"`, imported for its agent: that is defined by now.
            raise LoadedEnough
        unknown = set(values) - {*RUN, *_TOP_VALUES, *_OPTIONS}
        if unknown:
            raise TypeError(f"agentrun.run() got an unexpected argument {sorted(unknown)[0]!r}")
        if store is not None and not isinstance(store, Store | str):
            raise TypeError(f"store is {store!r}; give a store, or the address of one")
        if isinstance(items, str | bytes):
            raise TypeError("items is one text; give a list of them, or of paths or dicts")
        reference = agent if isinstance(agent, str) else _reference(agent)
        default = getattr(agent, "__name__", None) or reference.rpartition(":")[2]
        flags: dict[str, Any] = {
            "name": name or str(default).strip("<>"),
            "agent": reference,
            "items": {"python": True},
        }
        if key is not None:
            flags["items"]["key"] = key
        if values.get("timeout", 0) is None:
            values["timeout"] = 0
        if isinstance(values.get("engine"), str):
            values["engine"] = {"on": values["engine"]}
        flags |= {one: values[one] for one in _TOP_VALUES if values.get(one) is not None}
        flags["run"] = {one: values[one] for one in RUN if one not in ONE_LAUNCH and values.get(one) is not None}
        if "output" in flags:
            flags["output"] = os.fspath(flags["output"])
        self.options = read_options({one: values.get(one) for one in (*_OPTIONS, *ONE_LAUNCH)})
        self.opened = open_job(
            None,
            open_place=_opener(store),
            flags=Layer("agentrun.run()", flags),
            state_dir=state_dir,
            fresh=self.options.fresh,
        )
        self.job = self.opened.job
        if isinstance(store, Store):
            self.store: Store = store
        else:
            if name is None and self.opened.place.is_elsewhere(self.job.name):
                raise JobError("agentrun.run(): a job in a shared store needs a name of its own; add name=…")
            self.store = store_of(self.opened)
            if not self.options.fresh:
                check_one_place(self.opened)
        # Before `env_file` is read: the agent may have a PGPASSWORD of its own there.
        self.hidden = hide_secrets(os.environ, address_of(self.opened))
        self.environ: dict[str, str] = {}
        try:
            self.environ = agent_environment(self.job, os.environ)
            os.environ.update(self.environ)
            self.agent = load_agent(self.job) if isinstance(agent, str) else agent_from_function(agent, self.job)
            if self.options.fresh:
                self._warn_of_loss()
        except BaseException:
            self._give_environment_back()
            raise
        self.items = items
        self.on_event = on_event
        self.progress = progress
        self.launch: Launch | None = None

    def _warn_of_loss(self) -> None:
        lost = given_up(self.store)
        if lost.moved:
            warnings.warn(f"{self.job.name}: {lost.moved}; fresh=True starts it over here", stacklevel=4)
        if work := lost.work_of_people:
            warnings.warn(f"{self.job.name}: fresh=True gives up {work}", stacklevel=4)

    async def execute(self) -> Summary:
        from agentrun.launch.execute import execute

        def began(launch: Launch) -> None:
            self.launch = launch

        view = open_view(self.job.name, self.store.folder, wanted=self.progress)
        watchers = [one for one in (self.on_event, view.watch if view is not None else ignore) if one is not ignore]
        try:
            with view or contextlib.nullcontext():
                summary = await execute(
                    self.job,
                    self.agent,
                    self.store,
                    options=self.options,
                    watcher=Watchers(watchers) if watchers else ignore,
                    kept=self.opened.kept,
                    job_json=self.opened.job_json,
                    items=self.items,
                    environ=self.environ,
                    began=began,
                    terminal=view.terminal if view is not None else None,
                    is_guest=True,
                )
        finally:
            self._give_environment_back()
            self._report()
        return self._summary(summary)

    def _report(self) -> None:
        """Write the report that the job asks for, also after a launch that ended with an error."""
        if self.job.report is None or self.launch is None:
            return
        from agentrun.report.writing import report_after

        _, problem = report_after(self.job, KnownJob(self.job.name, self.store, self.job))
        if problem:
            warnings.warn(f"{self.job.name}: the report could not be written: {clean(problem)}", stacklevel=2)

    def _give_environment_back(self) -> None:
        """The variables were the agent's, and this process is somebody else's."""
        for name in self.environ:
            os.environ.pop(name, None)
        os.environ.update(self.hidden)

    def _summary(self, ended: checkpoint.Summary) -> Summary:
        return Summary(
            job=self.job.name,
            run_id=ended.run_id,
            exit_code=ended.exit_code,
            counts=ended.counts,
            total=ended.total,
            reason=ended.reason,
            output=Path(ended.output.path) if ended.output is not None else None,
            partial=Path(ended.partial) if ended.partial else None,
            details=ended.as_json(),
            _items=lambda: read_items(self.store, self.job),
        )

    def run_here(self) -> Summary:
        if threading.current_thread() is not threading.main_thread():
            return asyncio.run(self.execute())
        summary, caught = asyncio.run(self._with_signals())
        if caught and summary.exit_code > 128:
            if caught[0] == signal.SIGINT:
                raise KeyboardInterrupt
            signal.raise_signal(caught[0])
        return summary

    async def _with_signals(self) -> tuple[Summary, list[int]]:
        from agentrun.launch.signals import stop_on_signals

        with stop_on_signals(self.job, lambda: self.launch, exits=False) as caught:
            return await self.execute(), caught

    def run_in_thread(self) -> Summary:
        """In a notebook the loop of this thread is taken: a thread with a loop of its own does the work."""
        result: list[Summary | BaseException] = []
        loops: list[asyncio.AbstractEventLoop] = []

        async def main() -> Summary:
            loops.append(asyncio.get_running_loop())
            return await self.execute()

        def target() -> None:
            try:
                result.append(asyncio.run(main()))
            except BaseException as error:
                result.append(error)

        thread = threading.Thread(target=target, name="agentrun", daemon=True)
        thread.start()
        interrupted = False
        while thread.is_alive():
            try:
                thread.join(0.2)
            except KeyboardInterrupt:
                interrupted = True
                if self.launch is not None and loops:
                    loops[0].call_soon_threadsafe(self.launch.request_stop, signal.SIGINT)
        if interrupted:
            raise KeyboardInterrupt
        if isinstance(result[0], BaseException):
            raise result[0]
        return result[0]

    async def run_cancellable(self) -> Summary:
        task = asyncio.ensure_future(self.execute())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self.launch is not None and not task.done():
                self.launch.request_stop(signal.SIGINT)
                self.launch.request_stop(signal.SIGINT)
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()
            raise


def _reference(agent: Any) -> str:
    """A name for messages and for the identity of the job; what can be imported is found by `agent_from_function`."""
    return f"{getattr(agent, '__module__', 'python')}:{getattr(agent, '__qualname__', type(agent).__name__)}"
