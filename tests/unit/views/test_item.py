"""One item as anyone may see it."""

from __future__ import annotations

import msgspec
import pytest

from agentrun.agents.failure import Failure
from agentrun.checkpoint.record import PublishedFile, Question, Record, Try
from agentrun.money.usage import Usage
from agentrun.views.item import ItemView, State
from unit.records import make_record

LARGE = "x" * 100_000


def question(text: str) -> Question:
    return Question(n=1, text=text, details={"draft": LARGE})


def items() -> list[ItemView]:
    tries = [Try(launch=1, number=4, at=5.0, seconds=1.5)]
    file = PublishedFile("a.txt", 3, "00")
    error = Failure("exception", "row 17", types=("builtins.ValueError",), traceback=LARGE)
    records: list[tuple[State, Record]] = [
        ("done", make_record("a", output=LARGE, carry=LARGE, files=[file], at=1.0, seconds=2.0, usage=Usage(cost=0.5))),
        ("failed", make_record("b", "failed", error=error, warning=LARGE, tries=tries, agent="v2")),
        ("waiting", make_record("c", "waiting", question=question("Send it?"))),
        ("running", make_record("d", output=LARGE)),
    ]
    made = [ItemView(number, one.key, state, one, gen=number) for number, (state, one) in enumerate(records)]
    return [*made, ItemView(4, "e", "pending", changed=True)]


def test_a_line_of_an_item_has_its_facts_and_not_its_output() -> None:
    done, failed, waiting, _, pending = [item.as_json() for item in items()]
    assert done == {
        "index": 0,
        "key": "a",
        "state": "done",
        "attempts": 1,
        "seconds": 2.0,
        "ended_at": "1970-01-01T00:00:03.000Z",
        "agent": "v1",
        "cause": "",
        "changed": False,
        "cost": 0.5,
        "question": "",
    }
    assert (failed["attempts"], failed["ended_at"]) == (4, "1970-01-01T00:00:06.500Z")
    assert failed["cause"] == "ValueError: row 17"
    assert waiting["question"] == "Send it?"
    assert (pending["attempts"], pending["ended_at"], pending["agent"], pending["changed"]) == (0, None, "", True)


@pytest.mark.parametrize("item", items(), ids=lambda item: item.state)
def test_a_brief_item_shows_the_same_line_and_holds_nothing_large(item: ItemView) -> None:
    brief = item.brief()
    assert brief.as_json() == item.as_json() and (brief.gen, brief.slot) == (item.gen, item.slot)
    assert len(msgspec.json.encode(brief.record)) < 1000


def test_a_brief_item_leaves_the_item_as_it_was() -> None:
    whole, again = items()[0], items()[0]
    whole.brief()
    assert whole == again and whole.output == LARGE
