"""agentrun runs: the runs of a job, newest first."""

from __future__ import annotations

from agentrun_cli import flags


def runs(
    job: flags.KnownJob, as_json: flags.AsJson = False, state_dir: flags.StateDir = None, store: flags.Store = None
) -> None:
    """List the runs of a job, newest first. --json: one line per run.

    Of the last 3 runs, and of the newest finished one, the results are kept; of up to 20 the summary.

    \b
    agentrun runs triage
    agentrun results triage --run 3
    """
    from agentrun.views.runs import list_runs
    from agentrun_cli.asking.choosing import open_known
    from agentrun_cli.drawing.runs import run_table
    from agentrun_cli.terminal import put, put_json, say

    known = open_known(job, state_dir, store)
    found = list_runs(known.store)
    if as_json:
        for run in found:
            put_json(run.as_json())
        return
    if not found:
        say(f"{known.name}: has not run yet")
        return
    for line in run_table(found):
        put(line)
    finished = [run for run in found if run.status == "finished" and run.has_records]
    say()
    if finished:
        say(f"results:      agentrun results {known.shown} --run {finished[-1].shown}")
    if len(finished) > 1:
        say(f"differences:  agentrun diff {known.shown} {finished[-1].shown}")
