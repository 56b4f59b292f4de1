"""What people see of a graph's work: a line for each task that wrote something, and for what comes next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.types import Interrupt, Send

LIMIT = 300
QUESTION, ANSWER, ERROR, RESULT = "__interrupt__", "__resume__", "__error__", "__return__"
NEXT, TASKS = "branch:to:", "__pregel_tasks"
OUTPUTS = frozenset({RESULT, "__end__", "__root__"})


def view_of_writes(writes: Sequence[tuple[str, Any]], path: str) -> str:
    """The task's name and what it wrote."""
    said = "; ".join(part for channel, value in writes for part in _parts(channel, value) if part)
    name = name_in(path)
    return f"{name}: {_short(said)}" if said else name


def view_of_checkpoint(checkpoint: Checkpoint, metadata: CheckpointMetadata) -> str:
    """What comes after the checkpoint."""
    if metadata.get("source") == "input":
        return "begins"
    values = checkpoint["channel_values"]
    triggered = [name.removeprefix(NEXT) for name in values if name.startswith(NEXT)]
    sent = [one.node for one in values.get(TASKS) or () if isinstance(one, Send)]
    following = dict.fromkeys([*triggered, *sent])
    return f"next: {', '.join(following)}" if following else "ends"


def name_in(path: str) -> str:
    """The node in a task's path, such as `~__pregel_pull, model`."""
    names = [part.strip(" ~()'\"") for part in path.split(",")]
    names = [part for part in names if part and not part.startswith("__pregel") and not part.isdigit()]
    return names[-1].replace("__start__", "input") if names else "graph"


def _parts(channel: str, value: Any) -> Iterator[str]:
    if channel == QUESTION:
        for one in value if isinstance(value, Sequence) else [value]:
            yield f"asks {_plain(one.value if isinstance(one, Interrupt) else one)}"
    elif channel == ERROR:
        yield f"{type(value).__name__}: {value}".split("\n")[0]
    elif channel in OUTPUTS:
        yield _plain(value)
    elif channel.startswith("__") or ":" in channel:
        return
    elif isinstance(value, BaseMessage):
        yield _message(value)
    elif isinstance(value, list) and value and all(isinstance(one, BaseMessage) for one in value):
        yield from map(_message, value)
    else:
        yield f"{channel} = {_plain(value)}"


def _message(message: BaseMessage) -> str:
    calls = ", ".join(map(shown_call, message.tool_calls)) if isinstance(message, AIMessage) else ""
    return " ".join(part for part in (str(message.text), calls) if part)


def shown_call(call: ToolCall) -> str:
    return called(call["name"], call["args"])


def called(name: str, arguments: dict[str, Any]) -> str:
    """A call of a tool: `search(query="x")`."""
    return f"{name}({', '.join(f'{key}={_plain(value)}' for key, value in arguments.items())})"


def _plain(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def _short(text: str) -> str:
    return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"
