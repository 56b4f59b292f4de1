"""What the machine lacks is nobody's fault."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agentrun.agents.exceptions import failure_from, outcome_without_start
from agentrun.agents.failure import judge
from agentrun.system.disk import disk_error
from agentrun.system.shortage import SHORTAGE


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENFILE, "Too many open files in system"),
        RuntimeError("can't start new thread"),
        raised_from(ConnectionError("no connection"), OSError(errno.EMFILE, "Too many open files")),
    ],
)
def test_an_agent_that_cannot_get_a_descriptor_or_thread_stops_the_run_for_a_while(error: Exception) -> None:
    failure = failure_from(error)
    judgement = judge(failure)
    assert (judgement.verdict, judgement.passes_by_itself) == ("everyone", True)
    assert "raise the limit" in failure.cause


@pytest.mark.parametrize(
    "error",
    [BlockingIOError(errno.EAGAIN, "try again"), OSError(errno.ENOMEM, "no memory"), RuntimeError("thread"), OSError()],
)
def test_what_may_mean_something_else_is_judged_as_before(error: Exception) -> None:
    assert judge(failure_from(error)).verdict == "transient"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM])
def test_what_could_not_be_started_for_lack_of_something_says_so(number: int) -> None:
    outcome = outcome_without_start(OSError(number, os.strerror(number)), "a worker")
    assert outcome is not None and outcome.failure is not None and outcome.failure.code == SHORTAGE
    assert outcome_without_start(OSError(errno.ENOENT, "no such file"), "a worker") is None
    assert disk_error(Path("x"), OSError(number, "")).exit_code == 75
    assert disk_error(Path("x"), OSError(errno.EIO, "")).exit_code == 74
