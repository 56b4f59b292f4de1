"""agentrun answer: answer the question of a waiting item."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming


def answer(
    job: flags.KnownJob,
    item: confirming.Item = None,
    index: confirming.Index = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve.")] = False,
    no: Annotated[bool, typer.Option("--no", help="Refuse.")] = False,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="Answer in words; alone it means yes.")
    ] = None,
    details: Annotated[
        str | None, typer.Option("--json", metavar="OBJECT", help='Edit details: {"draft": "…"}; alone it means yes.')
    ] = None,
    all_items: Annotated[bool, typer.Option("--all", help="All waiting items.")] = False,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="PATH", help="A .csv or .jsonl: key, answer (yes/no), text, details."),
    ] = None,
    take_back: Annotated[
        bool, typer.Option("--take-back", help="Take back an answer that no runner has processed yet.")
    ] = False,
    by: confirming.By = None,
    resume: confirming.Resume = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Answer the question of a waiting item.

    \b
    agentrun answer drafts letters/ada.txt --yes
    agentrun answer drafts letters/ada.txt --no --text 'too long'
    agentrun answer drafts letters/ada.txt --json '{"draft": "Dear Ada"}'
    agentrun answer drafts --all --yes --resume
    agentrun answer drafts --file answers.csv
    agentrun answer drafts letters/ada.txt --take-back
    """
    from agentrun.people import desk
    from agentrun_cli.asking.answers_file import read_answers
    from agentrun_cli.asking.choosing import open_known, select, warn
    from agentrun_cli.terminal import HERE, clean, counted, say

    given = {"yes": yes, "no": no, "text": text is not None, "json": details is not None}
    is_one = item is not None or index is not None
    if take_back:
        _check_take_back(given, is_alone=is_one and not all_items and file is None)
        view = desk.take_back(open_known(job, state_dir, store), select(item, index), warn=warn)
        say(f"the answer to {clean(view.key)} is taken back; the item waits again")
        return
    _check(given, is_one=is_one, is_all=all_items, file=file)
    edited = _details(details)
    known = open_known(job, state_dir, store)
    if resume:
        confirming.check_can_resume(known)
    if file is not None:
        posting = desk.answer_each(known, read_answers(file), by=by or "", here=HERE, warn=warn)
    elif all_items:
        posting = desk.answer_all(known, yes=not no, text=text or "", by=by or "", warn=warn)
    else:
        one, said = select(item, index), text or ""
        posting = desk.answer(known, one, yes=not no, text=said, details=edited, by=by or "", warn=warn)
    if posting.ignored:
        lines, such = counted(len(posting.ignored), "line"), clean(posting.ignored[0].key)
        say(f"{lines} ignored: no longer waiting, such as {such}")
    if posting.already_answered:
        before = confirming.are(posting.already_answered, "question")
        say(f"{before} already answered, not processed yet; the first answer wins")
    what = f"{confirming.are(len(posting.items), 'answer')} posted"
    confirming.end(known, posting, what, ref=job, state_dir=state_dir, store=store, resume=resume)


def _check(given: dict[str, bool], *, is_one: bool, is_all: bool, file: str | None) -> None:
    from agentrun.errors import UsageError

    if is_one + is_all + (file is not None) != 1:
        raise UsageError("which item? Give one of: its key, --index N, --all, --file PATH")
    if file is not None and any(given.values()):
        raise UsageError("--file contains the answers; leave out --yes, --no, --text and --json")
    if given["yes"] and given["no"]:
        raise UsageError("--yes and --no are both given; give one of them")
    if file is None and not any(given.values()):
        raise UsageError("what is the answer? Give --yes, --no, --text TEXT or --json '{…}'")
    if is_all and given["json"]:
        raise UsageError("--json edits the details of one item; for many, give --file PATH")


def _check_take_back(given: dict[str, bool], *, is_alone: bool) -> None:
    from agentrun.errors import UsageError

    if any(given.values()):
        raise UsageError("--take-back and an answer are both given; take the answer back first, then answer again")
    if not is_alone:
        raise UsageError("--take-back is for one item: give its key, or --index N")


def _details(text: str | None) -> dict[str, Any]:
    from agentrun.errors import UsageError
    from agentrun.values.json import parse_value

    try:
        value = parse_value(text) if text is not None else {}
    except ValueError as error:
        raise UsageError(f"--json: {error}") from None
    if not isinstance(value, dict):
        raise UsageError('--json: write an object of details, such as {"draft": "…"}')
    return value
