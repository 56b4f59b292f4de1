"""A model on loopback that calls tools, by chat completions and by the Responses API; it does not stream.

It keeps nothing between requests: it decides by the conversation that it is sent. The user's text says what it does:

    key=07                            whose text it is
    <<tools search, weigh+weigh>>     the tools that it calls, one answer after the other; with + side by side in one
    <<inside note, note>>             what the text says that it gives to a tool with a parameter `input`: another agent
    <<wrong>>                         its first final answer is "wrong"; if that is sent back, the next one is right

Without the mark, the tools are `search, weigh, note`: 4 requests and 3 tool calls. A handoff is a tool, too. Each
text among the arguments says the key and the call's place, so that no two calls of an item are the same. The final
answer lists the results of all calls, in the calls' order; it is structured where the request wants that. Ids are
random: whoever asks again gets other ones. As real servers do, it refuses a conversation with a call that has no
result.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llm.conversation import OUTPUT_TOOL, Conversation, Use, of_chat, of_responses, use_of
from llm.loopback import JsonHandler, listen
from llm.server import example_of

USUAL_TOOLS = "search, weigh, note"
_MARK = re.compile(r"<<(\w+) ?([^>]*)>>")
_AT = re.compile(r"\bat=(\S+)")


class Refused(Exception):
    """What a request is answered with 400 for."""


@dataclass
class ModelCall:
    """One request, in the order in which they came."""

    at: float
    """When it had come, by the monotonic clock, which all processes share."""
    key: str
    conversation: Conversation = field(repr=False)
    input_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0
    wants: tuple[Use, ...] = ()
    """What the answer asks for."""
    is_answered: bool = False
    """The socket took the whole response, whether or not somebody heard it."""


@dataclass(frozen=True)
class Reply:
    text: str = ""
    uses: tuple[Use, ...] = ()
    """The tools to call."""


def reply_to(conversation: Conversation) -> Reply:
    """What the model says next."""
    marks = dict(_MARK.findall(conversation.text))
    calls = list(conversation.calls())
    if missing := [use for one, use in calls if one not in conversation.results]:
        raise Refused(f"No tool output found for function call {missing[0]}.")
    place = 0
    for together in marks.get("tools", USUAL_TOOLS).split(","):
        names = [name.strip() for name in together.split("+") if name.strip()]
        if place == len(calls) and names:
            return Reply(uses=tuple(_use(conversation, marks, name, place + n) for n, name in enumerate(names)))
        place += len(names)
    if place != len(calls):
        raise Refused(f"{len(calls)} calls are in the conversation, which has {place} in all: {calls}")
    said = "; ".join(conversation.results[one] for one, _ in calls)
    text = "wrong" if "wrong" in marks and not conversation.answers else f"{conversation.key}: {said}"
    if OUTPUT_TOOL in conversation.tools:
        return Reply(uses=((OUTPUT_TOOL, json.dumps(example_of(conversation.tools[OUTPUT_TOOL], text))),))
    return Reply(json.dumps(example_of(conversation.schema, text)) if conversation.schema else text)


def _use(conversation: Conversation, marks: dict[str, str], name: str, place: int) -> Use:
    if name not in conversation.tools:
        raise Refused(f"There is no tool {name}; there are {', '.join(conversation.tools)}.")
    schema, outer = conversation.tools[name], _AT.search(conversation.text)
    at = f"{outer[1]}.{place}" if outer else str(place)
    given = example_of(schema, f"key={conversation.key} at={at}")
    if "input" in given:
        given["input"] += f" <<tools {marks.get('inside', '')}>>"
    return name, json.dumps(given)


@dataclass
class ToolModel:
    seconds: float
    """How long an answer takes."""
    calls: list[ModelCall] = field(default_factory=list)
    url: str = ""
    connections: int = 0
    """Open now; when a client is killed, they close as soon as all that it sent is read."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def answered(self) -> list[ModelCall]:
        return [call for call in list(self.calls) if call.is_answered]

    def connect(self, change: int) -> None:
        with self._lock:
            self.connections += change

    def take(self, conversation: Conversation) -> ModelCall:
        tokens = 20 + 5 * len(conversation.turns)
        with self._lock:
            call = ModelCall(time.monotonic(), conversation.key, conversation, tokens, cached_tokens=tokens // 4)
            self.calls.append(call)
        return call

    def respond(self, path: str, body: dict[str, Any]) -> tuple[ModelCall | None, int, dict[str, Any]]:
        """Which call it is, the status and the response; waits as long as an answer takes."""
        shapes = {"/v1/chat/completions": (of_chat, _chat), "/v1/responses": (of_responses, _response)}
        if path not in shapes or body.get("stream"):
            return None, 404, _error(f"There is no {path}{' that streams' if body.get('stream') else ''} here.")
        read, write = shapes[path]
        call = self.take(read(body))
        self._ended.wait(self.seconds)
        try:
            reply = reply_to(call.conversation)
        except Refused as error:
            return None, 400, _error(str(error))
        call.wants = tuple(use_of(*use) for use in reply.uses)
        call.output_tokens = 7 + 3 * len(reply.uses)
        return call, 200, write(call, body["model"], reply)

    def end(self) -> None:
        self._ended.set()


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": None}}


def _chat(call: ModelCall, model: str, reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.uses:
        message["tool_calls"] = [
            {"id": _id("call"), "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in reply.uses
        ]
    usage = {
        "prompt_tokens": call.input_tokens,
        "completion_tokens": call.output_tokens,
        "total_tokens": call.input_tokens + call.output_tokens,
        "prompt_tokens_details": {"cached_tokens": call.cached_tokens},
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.uses else "stop"}
    head = {"id": _id("chatcmpl"), "object": "chat.completion", "created": 1_700_000_000, "model": model}
    return {**head, "choices": [choice], "usage": usage}


def _response(call: ModelCall, model: str, reply: Reply) -> dict[str, Any]:
    output: list[dict[str, Any]] = [
        {
            "type": "function_call",
            "id": _id("fc"),
            "call_id": _id("call"),
            "name": name,
            "arguments": arguments,
            "status": "completed",
        }
        for name, arguments in reply.uses
    ]
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]
        message = {"type": "message", "id": _id("msg"), "role": "assistant", "status": "completed", "content": content}
        output.append(message)
    usage = {
        "input_tokens": call.input_tokens,
        "input_tokens_details": {"cached_tokens": call.cached_tokens},
        "output_tokens": call.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": call.input_tokens + call.output_tokens,
    }
    head = {"id": _id("resp"), "object": "response", "created_at": 1_700_000_000, "model": model, "status": "completed"}
    choices = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    return {**head, **choices, "output": output, "usage": usage}


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


@contextmanager
def serve_tools(seconds: float = 0.0) -> Iterator[ToolModel]:
    """A model while the block runs; its `url` is what `base_url` wants."""
    model = ToolModel(seconds)

    class Handler(JsonHandler):
        def setup(self) -> None:
            super().setup()
            model.connect(1)

        def finish(self) -> None:
            model.connect(-1)
            super().finish()

        def do_POST(self) -> None:
            call, status, reply = model.respond(self.path, json.loads(self.read_body()))
            if call is not None:
                call.is_answered = True  # before the client can know
            if not self.send_json(status, {}, json.dumps(reply).encode()) and call is not None:
                call.is_answered = False

    with listen(Handler) as listening:
        model.url = f"{listening.address}/v1"
        try:
            yield model
        finally:
            model.end()
