"""Items as inputs of a graph, and its states as outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_openai_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentrun.errors import Fail, Stop
from agentrun.item import Item

MESSAGES, ROOT = "messages", "__root__"
AnyGraph = Pregel[Any, Any, Any, Any]


def input_fields(graph: AnyGraph) -> frozenset[str] | None:
    """The fields that the graph's input may have; None if it is not an object, or its fields are not known."""
    if not isinstance(graph, CompiledStateGraph):
        return None
    fields = frozenset(graph.builder.schemas[graph.builder.input_schema])
    return None if ROOT in fields else fields


def input_of(graph: AnyGraph, item: Item, *, key_field: str | None = None) -> Any:
    """What the graph is given for an item.

    A record whose fields the graph's input has is given as it is; its key field may be missing there. Any other item is
    the text of a message. Graphs whose input is not an object get the record, or the text. Fail for a record
    that does not fit, Stop for text, which never will.
    """
    fields = input_fields(graph)
    if fields is None:
        return item.text if item.data is None else item.data
    if isinstance(item.data, dict):
        given = {name: value for name, value in item.data.items() if name in fields or name != key_field}
        if given and fields.issuperset(given):
            return given
    if MESSAGES in fields:
        return {MESSAGES: [{"role": "user", "content": item.text}]}
    takes = f"the graph's input has {_listed(fields)}"
    fix = "make the items records with these fields, or call the graph in a function of your own"
    if isinstance(item.data, dict):
        raise Fail(f"the item is a record with {_listed(item.data)}, and {takes}; {fix}")
    raise Stop(f"the items are text, and {takes}; {fix}")


def output_of(state: Any, field: str | None) -> Any:
    """The item's output: the field of the state, or the text of the last message if messages are all it has, or all."""
    if field is not None:
        if not isinstance(state, Mapping) or field not in state:
            has = f"only {_listed(state)}" if isinstance(state, Mapping) else f"a {type(state).__name__}"
            raise Fail(f'the graph ended without "{field}", which is asked for as its output; it has {has}')
        state = state[field]
    elif isinstance(state, Mapping) and set(state) == {MESSAGES} and state[MESSAGES]:
        state = state[MESSAGES][-1]
        if isinstance(state, BaseMessage):
            return str(state.text)
    return plain(state)


def plain(value: Any) -> Any:
    """A value as JSON has it. Messages are in the form of OpenAI's API, which has no random ids."""
    try:
        return to_jsonable_python(_without_messages(value))
    except PydanticSerializationError as error:
        fix = 'choose a field of the state with [langgraph] output = "…", or return plain values'
        raise Fail(f"JSON cannot hold what the graph made: {error}; {fix}") from error


def _without_messages(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return convert_to_openai_messages(value)
    if isinstance(value, Mapping):
        return {name: _without_messages(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_messages(one) for one in value]
    return value


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "no fields"
