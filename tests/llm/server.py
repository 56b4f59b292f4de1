"""A server on loopback that speaks the chat completions of the OpenAI API, and misbehaves on demand.

What it does is said in the prompt, by marks such as `<<429 after=2 times=1>>`: `times` is how many requests with
the same text it concerns (all, without it). Marks: `400`, `401`, `403`, `404`, `429` (`after=` seconds), `500`,
`503`, `quota429`, `quota400`, `slow` (`seconds=`), `cut` (the connection ends within the body), `malformed`, `length`,
`filter`, `refusal`, `empty`, `nousage`, `exceed` (more tokens than `max_tokens` allows), `echo` (the key is in an
error). `key=…` in the prompt says whose request it is. What it does whatever it is asked is said by its `Manners`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llm.loopback import JsonHandler, listen
from llm.manners import Manners

_MARK = re.compile(r"<<([a-z0-9]+)((?: [a-z]+=[^\s>]+)*)>>")
_KEY = re.compile(r"\bkey=(\S+)")
_ERRORS: dict[str, tuple[int, str, str, str | None]] = {
    "400": (400, "The document cannot be read.", "invalid_request_error", "invalid_document"),
    "401": (401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
    "403": (403, "You may not use this.", "permission_error", None),
    "404": (404, "The model `nope` does not exist.", "invalid_request_error", "model_not_found"),
    "429": (429, "Rate limit reached.", "requests", "rate_limit_exceeded"),
    "503": (503, "Loading model", "unavailable_error", None),
    "500": (500, "The server had an error.", "server_error", None),
    "quota429": (429, "You exceeded your current quota.", "insufficient_quota", "insufficient_quota"),
    "quota400": (400, "Your credit balance is too low.", "invalid_request_error", None),
}
"""By mark: the status, and what the error says: message, type and code."""


@dataclass(frozen=True)
class Asked:
    """One request, as it came."""

    at: float
    number: int
    """From 0 on, of all."""
    again: int
    """How many there were before it with the same text."""
    text: str
    """What the user's message says, without files."""
    body: dict[str, Any]
    authorization: str

    @property
    def key(self) -> str:
        found = _KEY.search(self.text)
        return found[1] if found else ""

    @property
    def system(self) -> str:
        return "\n".join(one["content"] for one in self.body["messages"] if one["role"] in ("system", "developer"))

    def parts(self, kind: str) -> list[dict[str, Any]]:
        """The parts of the user's message of that kind, such as `image_url` or `file`."""
        contents = [one["content"] for one in self.body["messages"] if one["role"] == "user"]
        return [part for content in contents if isinstance(content, list) for part in content if part["type"] == kind]

    def mark(self, name: str) -> dict[str, str] | None:
        """The values of a mark that is in force for this request."""
        for found, values in _MARK.findall(self.text):
            given = dict(value.split("=", 1) for value in values.split())
            if found == name and self.again < int(given.get("times", 1_000_000)):
                return given
        return None


@dataclass
class LlmServer:
    answer: Callable[[Asked], str]
    tokens: Callable[[Asked], tuple[int, int]]
    """What a request uses, in and out."""
    asked: list[Asked] = field(default_factory=list)
    used: list[tuple[str, int, int]] = field(default_factory=list)
    """Key, tokens in and tokens out of each request that was answered, whether or not somebody heard it."""
    manners: Manners = field(default_factory=Manners)
    die: Callable[[], None] = lambda: None
    """End at once: no answer to requests in flight, and no connection from then on."""
    others: list[dict[str, Any]] = field(default_factory=list)
    """What came in by the APIs of Anthropic and of Google, as it came."""
    connections: set[tuple[str, int]] = field(default_factory=set)
    url: str = ""
    _texts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def requests_of(self) -> Counter[str]:
        return Counter(asked.key for asked in list(self.asked))

    def cost(self, per_token_in: float, per_token_out: float) -> float:
        """What all of it cost, at these prices."""
        return sum(taken * per_token_in + given * per_token_out for _, taken, given in list(self.used))

    def cost_of(self, per_token_in: float, per_token_out: float) -> dict[str, float]:
        costs: dict[str, float] = {}
        for key, taken, given in list(self.used):
            costs[key] = costs.get(key, 0.0) + taken * per_token_in + given * per_token_out
        return costs

    def take(self, body: dict[str, Any], authorization: str) -> Asked:
        text = "\n".join(_text_of(one["content"]) for one in body["messages"] if one["role"] == "user")
        with self._lock:
            asked = Asked(time.monotonic(), len(self.asked), self._texts[text], text, body, authorization)
            self._texts[text] += 1
            self.asked.append(asked)
        return asked

    def reply(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body. Waits where that is asked for, but not beyond the server's end."""
        tokens = self.tokens(asked)[0]
        if (refused := self.manners.refusal(asked.body, number=asked.number, tokens=tokens)) is not None:
            return refused[0], {}, json.dumps({"error": refused[1]}).encode()
        for name, (status, *said) in _ERRORS.items():
            if (given := asked.mark(name)) is not None:
                headers = {"Retry-After": given["after"]} if "after" in given else {}
                return status, headers, _error(*said)
        if asked.mark("echo") is not None:
            told = f"Incorrect API key provided: {asked.authorization}"
            return 400, {"X-Request": asked.authorization}, _error(told, asked.authorization, asked.authorization)
        if (given := asked.mark("slow")) is not None:
            self._ended.wait(float(given.get("seconds", 1)))
        if asked.mark("malformed") is not None:
            return 200, {}, b'{"id": "x", "choices": [{"mess'
        return 200, {}, json.dumps(self._completion(asked)).encode()

    def _completion(self, asked: Asked) -> dict[str, Any]:
        finish = next((name for name in ("length", "filter") if asked.mark(name) is not None), "stop")
        message: dict[str, Any] = {"role": "assistant", "content": self.answer(asked)}
        if asked.mark("refusal") is not None:
            message |= {"content": None, "refusal": "I will not."}
        if asked.mark("empty") is not None:
            message["content"] = ""
        taken, given = self.tokens(asked)
        if asked.mark("exceed") is not None:
            given = 3 * int(asked.body["max_tokens"])
        with self._lock:
            self.used.append((asked.key, taken, given))
        completion: dict[str, Any] = {
            "id": f"chatcmpl-{asked.number}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": self.manners.model or asked.body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "content_filter" if finish == "filter" else finish,
                }
            ],
        }
        if asked.mark("nousage") is None:
            completion["usage"] = {
                "prompt_tokens": taken,
                "completion_tokens": given,
                "total_tokens": taken + given,
                "prompt_tokens_details": {"cached_tokens": taken // 4},
            }
        return completion

    def end(self) -> None:
        self._ended.set()


def _error(message: str | None, kind: str | None, code: str | None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def _reply_of_another(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """What Anthropic's API and Google's answer: the least, to see what they are sent."""
    if path == "/v1/messages":
        content: dict[str, Any] = {"type": "text", "text": "HELLO"}
        if tools := body.get("tools"):
            inputs = example_of(tools[0]["input_schema"])
            content = {"type": "tool_use", "id": "t", "name": tools[0]["name"], "input": inputs}
        usage = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0}
        said = {"id": "m", "type": "message", "role": "assistant", "model": body["model"], "content": [content]}
        return {**said, "stop_reason": "end_turn", "usage": usage}
    if path.endswith(":generateContent"):
        schema = body["generationConfig"].get("responseJsonSchema")
        text = json.dumps(example_of(schema)) if schema else "HELLO"
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
        usage = {"promptTokenCount": 8, "candidatesTokenCount": 2, "cachedContentTokenCount": 3, "totalTokenCount": 10}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini"}
    return None


def example_of(schema: dict[str, Any], text: str = "text") -> Any:
    """The least that a schema of the simple kind describes, with this text wherever it wants one."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: example_of(inner, text) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return [example_of(schema.get("items", {}), text)] * max(1, schema.get("minItems", 1))
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            return text


def answer_simply(asked: Asked) -> str:
    """What the schema describes, if the request has one, natively or in a line; else the text in capitals."""
    wanted = asked.body.get("response_format", {})
    if wanted.get("type") == "json_object":
        form = next(line for line in asked.text.splitlines() if line.startswith("{"))
        return json.dumps(example_of(json.loads(form)))
    return json.dumps(example_of(wanted["json_schema"]["schema"])) if wanted else asked.text.upper()


def count_simply(asked: Asked) -> tuple[int, int]:
    return len(asked.text) // 4 + 1, 10


@contextmanager
def serve(
    answer: Callable[[Asked], str] = answer_simply,
    tokens: Callable[[Asked], tuple[int, int]] = count_simply,
    *,
    port: int = 0,
    manners: Manners | None = None,
) -> Iterator[LlmServer]:
    """A server while the block runs; its `url` is what `base_url` wants."""
    llm = LlmServer(answer, tokens, manners=manners or Manners())

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            body = self.read_body()
            llm.connections.add((self.client_address[0], self.client_address[1]))
            if (other := _reply_of_another(self.path, json.loads(body))) is not None:
                llm.others.append(json.loads(body))
                self.send_json(200, {}, json.dumps(other).encode())
                return
            if self.path != "/v1/chat/completions":
                self.send_json(404, {}, b'{"error": {"message": "no such path"}}')
                return
            asked = llm.take(json.loads(body), self.headers.get("Authorization", ""))
            status, headers, reply = llm.reply(asked)
            self.send_json(status, headers, reply, cut=asked.mark("cut") is not None)

    with listen(Handler, port=port) as listening:
        llm.url, llm.die = f"{listening.address}/v1", listening.die
        try:
            yield llm
        finally:
            llm.end()
