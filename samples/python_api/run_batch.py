"""A batch from a script: add up invoices, one of which is broken.

    python run_batch.py             # five of six are done, one failed: exit 1
    python run_batch.py --fixed    # the record is right now: only that one is run, exit 0

The first command leaves an unfinished run, kept under its name in .agentrun/ here. Kill the script wherever
you like and run it again: no invoice is paid for twice.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import agentrun

RATES = {"EUR": Decimal("1"), "USD": Decimal("0.92"), "GBP": Decimal("1.17")}

INVOICES: list[dict[str, Any]] = [
    {"id": "2025-001", "currency": "EUR", "lines": [["shelf", 2, "89.00"], ["screws", 40, "0.15"]]},
    {"id": "2025-002", "currency": "USD", "lines": [["lamp", 1, "49.50"]]},
    {"id": "2025-003", "currency": "???", "lines": [["kettle", 3, "24.90"]]},
    {"id": "2025-004", "currency": "GBP", "lines": [["chair", 4, "61.00"], ["delivery", 1, "12.00"]]},
    {"id": "2025-005", "currency": "EUR", "lines": [["tea set", 1, "38.40"], ["gift wrap", 1, "2.50"]]},
    {"id": "2025-006", "currency": "EUR", "lines": [["clock", 2, "75.25"]]},
]


def add_up(item: agentrun.Item) -> dict[str, str]:
    """The agent: any function of an item. What it returns is the output: anything that JSON can hold."""
    rate = RATES.get(item["currency"])
    if rate is None:
        # Fail: trying again will not help. Any other exception may pass, and is retried.
        raise agentrun.Fail(f"no rate for the currency {item['currency']!r}")
    total = sum((count * Decimal(price) for _, count, price in item["lines"]), Decimal(0))
    return {"total": f"{total:.2f} {item['currency']}", "in_euro": f"{total * rate:.2f}"}


def main() -> int:
    invoices = INVOICES
    if "--fixed" in sys.argv[1:]:
        invoices = [{**invoice, "currency": invoice["currency"].replace("???", "EUR")} for invoice in INVOICES]

    summary = agentrun.run(
        add_up,
        items=invoices,
        key="id",  # an invoice keeps its result when others come before it, and is run again when it changes
        name="invoices",
        concurrency=2,
        output="invoices.results.jsonl",
    )

    print(f"done {summary.counts['done']}, failed {summary.counts['failed']}")
    for result in summary.results():
        print(f"  {result['key']}  {result['output']['total']:>12}  {result['output']['in_euro']:>8} EUR")
    for failure in summary.failures():
        print(f"  {failure.key}  {failure.cause} (attempts: {failure.attempts})")

    try:
        summary.check()  # raises unless the run is complete: nothing after this line sees half a batch
    except agentrun.RunError as error:
        print(error, file=sys.stderr)
        return summary.exit_code
    print("all invoices are added up")
    return 0


if __name__ == "__main__":  # worker processes import this file to find the agent
    sys.exit(main())
