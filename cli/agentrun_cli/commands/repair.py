"""agentrun repair: continue from what is whole of a damaged state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming

if TYPE_CHECKING:
    from agentrun.people.repairing import Damage

NOT_REPAIRED = 65


def repair(
    job: flags.KnownJob,
    yes: confirming.Yes = False,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Show what is whole of a damaged state, and continue from there.

    \b
    agentrun repair triage
    agentrun repair triage --yes

    Exit 0: repaired, or nothing is wrong. 65: damaged, and not repaired (not confirmed, or no whole record is left, or
    a newer version wrote it). 75: a runner has the job.
    """
    from agentrun.errors import UsageError
    from agentrun.people.repairing import repairing
    from agentrun_cli.asking.choosing import open_known
    from agentrun_cli.drawing.damage import damage_lines
    from agentrun_cli.terminal import put_json, say

    known = open_known(job, state_dir, store)
    if known.store.where:
        raise UsageError(
            f"{known.name}: repair works on the folder store only; restore {known.store.where} from a backup, or start "
            f"over with --fresh"
        )
    if known.store.folder is not None and not known.store.folder.is_dir():
        say(f"{known.name}: has no run yet, so there is nothing to repair")
        return
    with repairing(known) as salvage:
        damage = salvage.examine()
        resume = f"to continue: {confirming.how_to_continue(known, is_unfinished=bool(damage.run_id))}"
        is_repaired = False
        if damage.problem:
            for line in damage_lines(known.name, damage):
                say(line)
            is_repaired = confirming.agrees("write a state that continues from there?", yes=yes)
            if is_repaired:
                salvage.rebuild()
            say(f"{known.name}: repaired; {resume}" if is_repaired else f"{known.name}: nothing changed")
        else:
            say(f"{known.name}: nothing to repair; {_state_of(damage)}{resume if damage.run_id else ''}")
    if as_json:
        put_json({"job": known.name, "repaired": is_repaired, **damage.as_json()})
    if damage.problem and not is_repaired:
        raise typer.Exit(NOT_REPAIRED)


def _state_of(damage: Damage) -> str:
    return "its run is unfinished, and whole; " if damage.run_id else "it has no unfinished run"
