"""A line that a serving program writes too much is never another item's outcome."""

from __future__ import annotations

import sys

import pytest

from identity.place import Place

COUNT = 15
SERVER = """
import json, sys, time

for line in sys.stdin:
    item = json.loads(line)
    with open("attempts", "a") as file:
        print(item["key"], file=file)

    def say(message, **more):
        print(json.dumps({{**message, **more}}), flush=True)

    {says}
"""
PROGRAMS = {
    "an outcome twice": """for _ in range(1 + (item["index"] % 5 == 2)):
        say({"type": "done", "output": item["text"]}, id=item.get("id"))""",
    "an outcome twice, the second one late": """say({"type": "done", "output": item["text"]}, id=item.get("id"))
    if item["index"] % 5 == 2:
        time.sleep(0.05)
        say({"type": "done", "output": item["text"]}, id=item.get("id"))""",
    "progress after the outcome": """say({"type": "done", "output": item["text"]}, id=item.get("id"))
    if item["index"] % 5 == 2:
        say({"type": "progress", "text": "done"}, id=item.get("id"))
        sys.stdin.readline()""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_line_too_many_is_not_the_next_items(place: Place, program: str) -> None:
    place.lines(COUNT)
    place.write("server.py", SERVER.format(says=PROGRAMS[program]))
    place.job(command=[sys.executable, "server.py"], serve=True, run='concurrency = 1\ntimeout = "20s"')
    ended = place("start", "work.toml")
    assert ended.returncode == 0, ended.stderr
    assert place.outputs() == {f"item {n}": f"item {n}" for n in range(COUNT)}


def test_a_program_that_does_not_repeat_the_id_is_told_at_its_first_item_what_to_write(place: Place) -> None:
    place.lines(COUNT)
    place.write("server.py", SERVER.format(says='say({"type": "done", "output": 1})'))
    place.job(command=[sys.executable, "server.py"], serve=True)
    ended = place("start", "work.toml")
    assert ended.returncode == 4, ended.stderr
    assert '"id"' in ended.stderr and "every line must repeat it" in " ".join(ended.stderr.split())
    assert len(place.said("attempts")) == 1
