"""Whether a server is given the schema, or the prompt is."""

from __future__ import annotations

import pytest

from agentrun.agents.prompts.prompt import Schema
from agentrun.agents.prompts.structured import ROUNDS, Structure, schema_in_words

NAMED = "'response_format.type' : value is not one of the allowed values ['text','json_object']"
NAMELESS = "Internal Server Error"


def ask(structure: Structure, status: int, said: str, *, answered: bool = True) -> bool:
    """One item whose native request fails, and whose question in words is answered or not; whether it changes all."""
    doubt = structure.doubt(status, said, began=structure.round)
    return doubt is not None and answered and structure.confirm(doubt)


def test_one_refusal_that_names_the_schema_and_an_answer_in_words_are_enough() -> None:
    structure = Structure(None)
    before = structure.way
    assert ask(structure, 400, NAMED)
    assert (before, structure.way) == ("native", "prompt")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "This response_format type is unavailable now"),
        (400, "This model does not support response format `json_schema`"),
        (422, "Invalid schema for response_format 'answer'"),
        (400, "failed to parse grammar"),
        (500, "('body', 'response_format', 'type'), 'msg': \"Input should be 'text' or 'json_object'\""),
        (400, "Unknown name at 'generation_config.response_json_schema'"),
    ],
)
def test_servers_name_the_schema_in_many_ways(status: int, said: str) -> None:
    doubt = Structure(None).doubt(status, said, began=0)
    assert doubt is not None and doubt.names_schema


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "The document cannot be read."),
        (400, "the request exceeds the available context size, try increasing it"),
        (401, NAMED),
        (404, NAMED),
        (429, NAMED),
        (503, "Loading model"),
        (502, NAMELESS),
    ],
)
def test_other_errors_say_nothing_about_schemas(status: int, said: str) -> None:
    assert Structure(None).doubt(status, said, began=0) is None


def test_a_refusal_after_which_words_are_not_answered_either_changes_nothing() -> None:
    structure = Structure(None)
    for _ in range(5):
        assert not ask(structure, 400, NAMED, answered=False)
        assert not ask(structure, 500, NAMELESS, answered=False)
    assert structure.way == "native"


def test_an_error_that_names_nothing_changes_all_in_its_third_round() -> None:
    structure = Structure(None)
    assert [ask(structure, 500, NAMELESS) for _ in range(ROUNDS)] == [False, False, True]
    assert structure.way == "prompt"


def test_one_outage_is_one_round_however_many_items_it_hits() -> None:
    structure = Structure(None)
    doubts = [structure.doubt(500, NAMELESS, began=structure.round) for _ in range(50)]
    assert not any(structure.confirm(doubt) for doubt in doubts if doubt is not None)
    assert structure.way == "native"


def test_a_server_that_has_answered_natively_is_never_given_up() -> None:
    structure = Structure(None)
    ask(structure, 500, NAMELESS)
    structure.answered()
    assert structure.doubt(500, NAMELESS, began=structure.round) is None
    for _ in range(5):
        # This one question is asked in words: it would fail otherwise.
        assert structure.doubt(400, NAMED, began=structure.round) is not None
        assert not ask(structure, 400, NAMED)
    assert structure.way == "native"


def test_only_one_of_those_in_flight_changes_all() -> None:
    structure = Structure(None)
    doubts = [structure.doubt(400, NAMED, began=0) for _ in range(3)]
    assert [structure.confirm(doubt) for doubt in doubts if doubt is not None] == [True, False, False]


def test_the_job_may_say_which_way_it_is() -> None:
    for structured in ("native", "prompt"):
        structure = Structure(structured)
        assert structure.doubt(400, NAMED, began=0) is None
        assert structure.way == structured
    assert Structure(None, may_change=False).doubt(400, NAMED, began=0) is None


def test_in_words_the_schema_is_the_last_line() -> None:
    form = {"type": "object", "title": "Grün"}
    words = schema_in_words(Schema(form))
    assert words.startswith("\n\nAnswer with a JSON object") and words.endswith('\n{"type": "object", "title": "Grün"}')
