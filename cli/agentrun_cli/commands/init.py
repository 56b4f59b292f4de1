"""agentrun init: write a job to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Prompt = Annotated[bool, typer.Option("--prompt", help="The agent is a prompt, sent to a model.")]
Python = Annotated[
    str | None,
    typer.Option("--python", metavar="SDK", help="Python that calls a model with openai, anthropic or litellm."),
]
LangGraph = Annotated[bool, typer.Option("--langgraph", help="The agent is a graph of LangGraph.")]
OpenAIAgents = Annotated[bool, typer.Option("--openai-agents", help="The agent is one of the OpenAI Agents SDK.")]
PydanticAI = Annotated[bool, typer.Option("--pydantic-ai", help="The agent is one of pydantic-ai.")]
Program = Annotated[bool, typer.Option("--command", help="The agent is a program or script, in any language.")]
Nightly = Annotated[bool, typer.Option("--nightly", help="Also what cron and systemd need to run it every night.")]


def init(
    folder: Annotated[str, typer.Argument(metavar="[FOLDER]", help="Where to write it; created if missing.")] = ".",
    prompt: Prompt = False,
    python: Python = None,
    langgraph: LangGraph = False,
    openai_agents: OpenAIAgents = False,
    pydantic_ai: PydanticAI = False,
    command: Program = False,
    nightly: Nightly = False,
) -> None:
    """Write a job file and a small agent to start from.

    \b
    agentrun init triage
    agentrun init triage --python openai
    agentrun init triage --langgraph
    agentrun init triage --prompt --nightly
    """
    from agentrun_cli.drafts import writing
    from agentrun_cli.drafts.draft import draft_job

    root = Path(folder)
    given = writing.given_kind(
        {
            "prompt": prompt,
            "langgraph": langgraph,
            "openai-agents": openai_agents,
            "pydantic-ai": pydantic_ai,
            "command": command,
        },
        python=python,
    )
    is_schedule_only = nightly and given is None and (root / "job.toml").is_file()
    files = writing.nightly_files(root) if nightly else []
    kind = None
    if not is_schedule_only:
        kind = given or writing.ask_kind()
        files = [*draft_job(kind, nightly=nightly), *files]
    writing.write(root, files)
    writing.say_what_is_next(root, kind, files)
