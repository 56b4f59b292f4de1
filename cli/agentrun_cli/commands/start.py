"""agentrun start: start a run, or resume the unfinished one."""

from __future__ import annotations

import typer

from agentrun_cli import flags
from agentrun_cli.asked import asked_job


def start(
    ctx: typer.Context,
    job: flags.JobRef = None,
    rest: flags.Rest = None,
    items: flags.Items = None,
    exclude: flags.Exclude = None,
    kind: flags.Kind = None,
    key: flags.Key = None,
    settings: flags.Settings = None,
    concurrency: flags.Concurrency = None,
    on: flags.On = None,
    output: flags.Output = None,
    name: flags.Name = None,
    limit: flags.Limit = None,
    only: flags.Only = None,
    pilot: flags.Pilot = None,
    plan: flags.Plan = False,
    fresh: flags.Fresh = False,
    yes: flags.Yes = False,
    rerun: flags.Rerun = None,
    failed: flags.Failed = False,
    prompt: flags.Prompt = None,
    model: flags.Model = None,
    system: flags.System = None,
    schema: flags.Schema = None,
    structured: flags.Structured = None,
    base_url: flags.BaseUrl = None,
    max_output_tokens: flags.MaxOutputTokens = None,
    temperature: flags.Temperature = None,
    budget: flags.Budget = None,
    token_budget: flags.TokenBudget = None,
    item_budget: flags.ItemBudget = None,
    item_token_budget: flags.ItemTokenBudget = None,
    until: flags.Until = None,
    max_time: flags.MaxTime = None,
    timeout: flags.Timeout = None,
    retries: flags.Retries = None,
    rate: flags.Rate = None,
    tokens: flags.Tokens = None,
    no_adapt: flags.NoAdapt = False,
    max_wait: flags.MaxWait = None,
    no_wait: flags.NoWait = False,
    now: flags.Now = False,
    allow_failures: flags.AllowFailures = None,
    stop_after_failures: flags.StopAfter = None,
    grace: flags.Grace = None,
    crash_limit: flags.CrashLimit = None,
    isolation: flags.Isolation = None,
    parse: flags.Parse = None,
    serve: flags.Serve = False,
    agent_version: flags.AgentVersion = None,
    env_file: flags.EnvFile = None,
    needs_env: flags.NeedsEnv = None,
    carry: flags.Carry = False,
    keep_changed: flags.KeepChanged = False,
    adopt: flags.Adopt = False,
    allow_gone: flags.AllowGone = False,
    accept_edits: flags.AcceptEdits = False,
    overwrite: flags.Overwrite = False,
    forget_steps: flags.ForgetSteps = False,
    if_free: flags.IfFree = False,
    detach: flags.Detach = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
    quiet: flags.Quiet = False,
    plain: flags.Plain = False,
    progress_every: flags.ProgressEvery = None,
    as_json: flags.AsJson = False,
) -> None:
    """Run an agent over a batch; resume an unfinished run.

    \b
    agentrun start triage/job.toml
    agentrun start summarise.py:summarise --items 'docs/*.txt' -j 8 -o out.jsonl
    agentrun start --name fetch --items urls.txt --as lines -- ./fetch.sh {}
    agentrun start --prompt @ask.md --model openai:gpt-5-mini --items 'docs/*.md'
    """
    from agentrun_cli.launching import launch, options_of

    asked = asked_job(flags.Given(ctx.params), ctx.obj)
    raise typer.Exit(launch(asked, options_of(asked.given, resume=False)))
