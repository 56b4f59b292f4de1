"""What a job says about notices: occasions, addresses, a program. No message shows an address."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from agentrun.errors import JobError
from agentrun.job.build import build_job
from agentrun.job.fields import Layer
from agentrun.job.job import Job
from agentrun.job.notify import Notify

LEAST = 'agent = "agent.py:work"\n[items]\nlines = "items.txt"\n'
SECRET = "slack://TokenA/TokenB/TokenC"


def build(text: str) -> Job:
    layer = Layer("job.toml", tomllib.loads(LEAST + text), LEAST + text)
    return build_job([layer], base=Path("/base"), file=Path("/base/job.toml"), default_name="job")


def test_a_job_without_the_table_tells_nobody() -> None:
    assert build("").notify is None


def test_every_end_after_five_minutes_is_told_unless_the_job_says_otherwise() -> None:
    assert build('[notify]\nurls = ["ntfy://a"]').notify == Notify(
        on=("finished", "failed", "waiting", "stopped"), after_seconds=300.0, urls=("ntfy://a",)
    )
    notify = build(
        '[notify]\non = ["stopped", "failed"]\nafter = "1h"\ncommand = ["./tell.sh"]\nurls = "env:HOOK"'
    ).notify
    assert notify == Notify(on=("failed", "stopped"), after_seconds=3600.0, urls=("env:HOOK",), command=("./tell.sh",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[notify]\nafter = "5m"', "line 5: notify.after is given, but nobody to tell"),
        ('[notify]\nurls = ["ntfy://a"]\non = ["done"]', 'notify.on is "done"; write a list of finished, failed'),
        ('[notify]\nurls = ["ntfy://a"]\nafter = "soon"', "notify.after"),
        ("[notify]\ncommand = []", "notify.command"),
        ('[notify]\nurls = ["env:"]', "place 1 env: without a variable's name"),
        ('[notify]\nurl = "ntfy://a"', "notify.url is not a known key; did you mean urls?"),
    ],
)
def test_what_is_wrong_is_said_with_the_key(text: str, said: str) -> None:
    with pytest.raises(JobError) as caught:
        build(text)
    assert said in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        f'[notify]\nurls = ["{SECRET}", 3]',
        f'[notify]\nurls = {{ a = "{SECRET}" }}',
        f'[notify]\nurl = "{SECRET}"',
        f'[run]\nurls = ["{SECRET}"]',
        f'[notify]\nurls = ["{SECRET}"]\non = "never"',
        f'[notify]\nurls = ["env:{SECRET}"]',
    ],
)
def test_no_message_shows_an_address(text: str) -> None:
    with pytest.raises(JobError) as caught:
        build(text)
    assert "Token" not in caught.value.message


def test_an_address_in_place_of_the_table_is_not_shown() -> None:
    text = f'notify = "{SECRET}"\n{LEAST}'
    with pytest.raises(JobError, match="notify is not a table") as caught:
        build_job([Layer("job.toml", tomllib.loads(text), text)], base=Path("/"), file=None, default_name="job")
    assert "Token" not in caught.value.message


def test_a_job_as_text_does_not_show_its_addresses() -> None:
    assert "Token" not in repr(build(f'[notify]\nurls = ["{SECRET}"]'))
