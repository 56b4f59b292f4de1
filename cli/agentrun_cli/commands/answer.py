"""agentrun answer: answer the question of a waiting item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming as handing_in

if TYPE_CHECKING:
    from agentrun_cli.asking.choosing import KnownJob


def answer(
    job: flags.KnownJob,
    item: handing_in.Item = None,
    index: handing_in.Index = None,
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
    by: handing_in.By = None,
    resume: handing_in.Resume = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Answer the question of a waiting item.

    \b
    agentrun answer drafts letters/ada.txt --yes
    agentrun answer drafts letters/ada.txt --no --text 'too long'
    agentrun answer drafts letters/ada.txt --json '{"draft": "Dear Ada"}'
    agentrun answer drafts --all --yes --resume
    agentrun answer drafts --file answers.csv
    """
    from agentrun.errors import UsageError
    from agentrun.people.messages import answer_message, answered, posted, question_of, run_of
    from agentrun_cli.asking.answers_file import read_answers
    from agentrun_cli.asking.choosing import choose_view, open_items, open_known

    given = {"yes": yes, "no": no, "text": text is not None, "json": details is not None}
    _check(given, is_one=item is not None or index is not None, is_all=all_items, file=file)
    edited, who = _details(details), handing_in.signed(by)
    known = open_known(job, state_dir)
    before = answered(posted(known.folder))
    with open_items(known) as listing:
        run_id = run_of(listing, known.folder.name)
        if file is not None:
            answers = read_answers(file, known, listing)
        elif all_items:
            answers = [(view, {"yes": not no, "text": text or ""}) for view in listing.items({"waiting"})]
        else:
            view = choose_view(known, listing, item, index)
            answers = [(view, {"yes": not no, "text": text or "", "details": edited})]
    new = [(view, said) for view, said in answers if question_of(view) not in before]
    if len(new) < len(answers):
        _say_answered(known, len(answers) - len(new), is_one=file is None and not all_items)
    if not new:
        raise UsageError(
            f"{known.folder.name}: {'nothing new to answer' if answers else 'no items are waiting for an answer'}"
        )
    handing_in.hand_in(known, [answer_message(view, run_id, by=who, **said) for view, said in new])
    handing_in.end(known, f"{handing_in.are(len(new), 'answer')} posted", go_on=resume)


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


def _say_answered(known: KnownJob, count: int, *, is_one: bool) -> None:
    from agentrun.errors import UsageError
    from agentrun_cli.terminal import say

    if is_one:
        raise UsageError(
            f"{known.folder.name}: this question has an answer that is not processed yet; the first answer wins; "
            f"to continue: {handing_in.how_to_go_on(known)}"
        )
    say(f"{handing_in.are(count, 'question')} already answered, not processed yet; the first answer wins")
