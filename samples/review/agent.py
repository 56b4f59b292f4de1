"""Drafts a reply to a letter, asks a person, and sends it as the person left it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agentrun

SENT = Path("sent")


def reply(item: agentrun.Item, ctx: agentrun.Context) -> dict[str, Any]:
    # Remembered: after the answer, or after a crash, the draft is not written again.
    draft = ctx.step("draft", write_draft, item.text)
    # Parks this letter, without holding anything open, until somebody answers. The others go on.
    answer = ctx.ask("Send this draft?", draft=draft)
    if not answer:
        raise agentrun.Skip(f"refused by {answer.by}" + (f": {answer.text}" if answer.text else ""))
    # As the reviewer edited it. The key is the same in every attempt: whoever sends can tell a repetition.
    send(answer["draft"], key=ctx.key("send"))
    return {"sent": answer["draft"], "note": answer.text}


def write_draft(letter: str) -> str:
    """A model would do this; here a template will."""
    name = letter.strip().splitlines()[-1].strip()
    topic = next((word for word in ("refund", "invoice", "delivery") if word in letter.lower()), "letter")
    return (
        f"Dear {name},\n\nthank you for writing to us about your {topic}. We are looking into it.\n\nYours,\nthe desk\n"
    )


def send(text: str, *, key: str) -> None:
    """Into a file of that name: sent twice, it is still one letter."""
    SENT.mkdir(exist_ok=True)
    (SENT / f"{key}.txt").write_text(text)
