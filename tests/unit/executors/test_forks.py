"""Agents that fork: a child that comes back from the agent ends there, and never speaks for the item."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from unit.executors.conftest import Bench

ISOLATIONS = ["thread", "process"]
# Python warns of a fork where there are threads, and every warning is an error here.
FORK = """
    import os, sys, warnings
    warnings.simplefilter("ignore")

    def forked():
        '''True in a child; the parent waits for it, and notes how it ended.'''
        child = os.fork()
        if child:
            os.write(1, b"")
            with open("codes", "a") as file:
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=file)
        return child == 0
"""
CHILDREN = {
    "returns": ("return 'of the child'", 0, "a forked child returned from the agent"),
    "raises": ("raise ValueError('in the child')", 1, "ValueError: in the child"),
    "exits": ("sys.exit(7)", 7, ""),
    "reports progress": ("ctx.progress('of the child')", 1, "ctx was used in a forked child"),
    "makes a step": ("return ctx.step('a', str)", 1, "ctx was used in a forked child"),
    "asks for its folder": ("return ctx.out", 1, "ctx was used in a forked child"),
    "logs": ("ctx.log('of the child')", 1, "ctx was used in a forked child"),
}


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("child", CHILDREN)
def test_a_forked_child_that_does_not_exit_ends_without_a_message(bench: Bench, isolation: str, child: str) -> None:
    does, code, says = CHILDREN[child]
    source = f"""{FORK}
    class Agent:
        def __call__(self, item, ctx):
            if item.index == 1 and forked():
                {does}
            return item.index

        def close(self):
            open("closed", "a").write("x")
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            for index in range(4):
                attempt = bench.attempt(item=bench.item(index))
                assert bench.output(await executor.run(attempt, bench.channel)) == index
                if index == 1:
                    assert says in bench.log()

    bench.run(scenario())
    assert (bench.folder / "codes").read_text().split() == [str(code)]
    assert (bench.folder / "closed").read_text() == "x"
    assert bench.messages == []


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_children_of_multiprocessing_may_do_the_work(bench: Bench, isolation: str) -> None:
    source = f"""{FORK}
    import multiprocessing

    def double(number, queue):
        queue.put(2 * number)

    def agent(item, ctx):
        fork = multiprocessing.get_context("fork")
        queue = fork.SimpleQueue()
        child = fork.Process(target=double, args=(item.index, queue))
        child.start()
        child.join()
        ctx.progress("half way")
        return [queue.get(), child.exitcode]
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            for index in range(3):
                attempt = bench.attempt(item=bench.item(index))
                assert bench.output(await executor.run(attempt, bench.channel)) == [2 * index, 0]

    bench.run(scenario())
    assert bench.messages == [{"type": "progress", "text": "half way"}] * 3


def test_a_fork_that_python_does_not_know_of_is_noticed(bench: Bench) -> None:
    source = """
    import ctypes, os

    def agent(item, ctx):
        if item.index == 1:
            child = ctypes.CDLL(None).fork()
            if child == 0:
                return "of the child"
            os.waitpid(child, 0)
        return item.index
    """

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            for index in range(3):
                attempt = bench.attempt(item=bench.item(index))
                assert bench.output(await executor.run(attempt, bench.channel)) == index

    bench.run(scenario())


def test_a_child_that_is_forked_while_the_agent_is_loaded_or_closed_ends_there(bench: Bench) -> None:
    source = f"""{FORK}
    class Agent:
        def __init__(self):
            self.is_child = forked()

        def __call__(self, item):
            return item.index

        def close(self):
            forked()
    """

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            for index in range(2):
                attempt = bench.attempt(item=bench.item(index))
                assert bench.output(await executor.run(attempt, bench.channel)) == index

    bench.run(scenario())
    assert len((bench.folder / "codes").read_text().split()) == 2
