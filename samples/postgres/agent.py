"""Sorts letters by a word in them; a model would do better, and cost something."""

import os
import time

import agentrun

DESKS = {"kettle": "repairs", "invoice": "billing", "thank": "nobody", "password": "accounts"}


def sort(item: agentrun.Item) -> dict[str, str | int]:
    time.sleep(float(os.environ.get("LETTERS_SECONDS", "0.05")))
    desk = next((desk for word, desk in DESKS.items() if word in item.text.lower()), "front desk")
    return {"desk": desk, "words": len(item.text.split())}
