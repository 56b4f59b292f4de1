"""A draft: the files of a job to start from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agentrun_cli.drafts import agents

Kind = Literal[
    "prompt", "openai", "anthropic", "litellm", "langgraph", "openai-agents", "pydantic-ai", "command", "function"
]
KINDS: Mapping[Kind, str] = {
    "prompt": "a prompt, sent to a model",
    "openai": "a Python function that calls a model with openai",
    "anthropic": "a Python function that calls a model with anthropic",
    "litellm": "a Python function that calls a model with litellm",
    "langgraph": "an agent from LangGraph",
    "openai-agents": "an agent from the OpenAI Agents SDK",
    "pydantic-ai": "an agent from pydantic-ai",
    "command": "a program or script, in any language",
    "function": "a Python function without a model, which runs as it is",
}
"""The kinds of job, as the question of `agentrun init` names them."""
SDKS: tuple[Kind, ...] = ("openai", "anthropic", "litellm")
PACKAGES: Mapping[Kind, Mapping[str, str]] = {
    "openai": {"openai": "openai"},
    "anthropic": {"anthropic": "anthropic"},
    "litellm": {"litellm": "litellm"},
    "langgraph": {"langgraph": "langgraph", "langchain": "langchain", "langchain_openai": "langchain-openai"},
    "openai-agents": {"agents": "'openai-agents>=0.24,<0.25'"},
    "pydantic-ai": {"pydantic_ai": "'pydantic-ai-slim[openai]>=2.66'"},
}
"""What a kind of job imports, and the words with which pip installs it."""
KEYS: Mapping[Kind, str] = {
    "prompt": "OPENAI_API_KEY",
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "litellm": "OPENAI_API_KEY",
    "langgraph": "OPENAI_API_KEY",
    "openai-agents": "OPENAI_API_KEY",
    "pydantic-ai": "OPENAI_API_KEY",
}
"""The environment variable that a kind of job cannot do without."""
ITEMS = {
    "items/1-harbour.txt": "The harbour at six\nA gull, two boats, and somebody hammering far away.\n",
    "items/2-kettle.txt": "On kettles\nIt sings before it boils, and falls silent when it does.\n",
    "items/3-letter.txt": "Dear Ada\nThe parcel came. The clock inside it still goes.\n",
}
_JOB = """\
# A job: which items, which agent, which limits. Run it with: agentrun start
# Paths are relative to this file. Every value can also be given as a flag.

{agent}
{output}
{env}

[items]
files = "items/*.txt"               # or jsonl = "items.jsonl", csv = "items.csv", lines = "urls.txt"
# exclude = ["draft-*"]             # files to leave out
# key = "id"                        # jsonl and csv: the field that identifies an item

[run]
{run}
"""
_OUTPUT = 'output = "results.jsonl"            # one JSON line per item, in item order'
_NIGHTLY_OUTPUT = 'output = "results-{date}.jsonl"     # one file a night: none overwrites another'
_RUN = """\
concurrency = {concurrency}                     # items in flight at a time
timeout = {timeout:25} # per attempt
retries = 3                         # after the first attempt, for errors that may be temporary{money}
allow_failures = 0                  # how many items may fail: N or "N%"
stop_after_failures = 10            # stop the run after this many in a row"""
_NIGHTLY_RUN = """\
concurrency = {concurrency}                     # items in flight at a time
timeout = {timeout:25} # per attempt: nothing hangs until the morning
retries = 3                         # after the first attempt, for errors that may be temporary{money}
allow_failures = "100%"             # failed items do not keep the run open; the next night retries them
stop_after_failures = 5             # this many in a row is no bad luck: stop with exit 4
max_wait = "4h"                     # how long a quota is waited for; less than TimeoutStartSec
grace = "20s"                       # at a stop, for items in flight; less than TimeoutStopSec
max_age = "20h"                     # older results are run again: every night, everything is.
                                    # Without this line, only new, changed and failed items are."""
_MONEY = """
# rate = "60/min"                   # attempts started
# budget = 5.00                     # US dollars for the whole run"""
_ENV = """\
# env_file = ".env"                 # variables for the agent, such as keys; written nowhere
{needs} # a missing one is reported before the first item"""
_NIGHTLY_ENV = """\
env_file = ".env"                   # variables for the agent, such as keys: cron and systemd have none of yours
{needs} # a missing one is reported before the first item"""


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A file to be written. An existing one is an error, except for one that is `kept` as it is."""

    name: str
    text: str
    mode: int = 0o644
    kept: bool = False


def draft_job(kind: Kind, *, nightly: bool = False) -> list[DraftFile]:
    """The job file, the agent and three items."""
    files = [DraftFile("job.toml", _job_text(kind, nightly=nightly))]
    for name, text in agents.FILES[kind].items():
        files.append(DraftFile(name, text, 0o755 if name.endswith(".sh") else 0o644))
    if nightly and kind in KEYS:
        files.append(DraftFile(".env", f"# {KEYS[kind]}=...\n", 0o600, kept=True))
    return files + [DraftFile(name, text) for name, text in ITEMS.items()]


def _job_text(kind: Kind, *, nightly: bool) -> str:
    calls_a_model = kind in KEYS
    key = KEYS.get(kind, "OPENAI_API_KEY")
    needs = f'{"" if calls_a_model else "# "}needs_env = ["{key}"]'
    has_env_file = nightly and calls_a_model
    return _JOB.format(
        agent=agents.LINES[kind],
        output=_NIGHTLY_OUTPUT if nightly else _OUTPUT,
        env=(_NIGHTLY_ENV if has_env_file else _ENV).format(needs=f"{needs:35}"),
        run=(_NIGHTLY_RUN if nightly else _RUN).format(
            concurrency=4 if calls_a_model else 2,
            timeout='"5m"' if calls_a_model else '"30m"',
            money=_MONEY if calls_a_model else "",
        ),
    )
