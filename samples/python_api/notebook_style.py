"""The same from a notebook: an async agent, its context, and `await`.

    python notebook_style.py

In a notebook the body of `main` is one cell: `await` works there as it is. `agentrun.run` does too.
"""

from __future__ import annotations

import asyncio

import agentrun

NOTES = [
    "The parcel came on Monday. It was open. The courier had left it in the rain. Nobody rang.",
    "Thank you for the quick answer. The lamp works. It was the switch.",
    "(empty)",
    "We moved to another floor. Please send the invoices there. The old address is wrong from May on.",
]

OUTBOX: dict[str, str] = {}


async def deliver(text: str, *, idempotency_key: str) -> None:
    """A service on the other side of a network: it takes each key once, however often it is asked."""
    await asyncio.sleep(0.05)
    OUTBOX.setdefault(idempotency_key, text)


async def shorten(item: agentrun.Item, ctx: agentrun.Context) -> dict[str, str | int]:
    """A parameter named ctx gets the context of this item."""
    if item.text == "(empty)":
        raise agentrun.Skip("nothing to shorten")  # settled on purpose: neither a result nor a failure
    sentences = item.text.split(". ")
    short = ". ".join(sentences[: ctx.params["sentences"]]).rstrip(".") + "."
    ctx.log(f"attempt {ctx.attempt}: {len(sentences)} sentences, {len(short)} characters left")

    # The key is the same in every attempt and after every crash of this run: nothing is delivered twice.
    await deliver(short, idempotency_key=ctx.key("deliver"))
    return {"short": short, "left_out": max(0, len(sentences) - ctx.params["sentences"])}


async def main() -> None:
    summary = await agentrun.arun(
        shorten,
        items=NOTES,  # texts; a list of dicts or of pathlib.Path works as well
        name="notes",
        params={"sentences": 2},
        concurrency=4,  # async agents share the event loop
        output="notes.results.jsonl",
    )
    summary.check()

    for result in summary.results():
        print(f"{result['index']}: {result['output']['short']}")
    print(f"done {summary.counts['done']}, skipped {summary.counts['skipped']}, delivered {len(OUTBOX)}")


if __name__ == "__main__":
    asyncio.run(main())
