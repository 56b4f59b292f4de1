"""How real servers behave, whatever they are asked. What is here was seen with them, or read in their source.

`LLAMA_SERVER` is llama.cpp's own server, `LLAMA_CPP_SERVER` is `python -m llama_cpp.server` of llama-cpp-python 0.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ErrorBody = dict[str, Any]


@dataclass(frozen=True)
class Manners:
    """Whatever is None or False, the server does as OpenAI's does."""

    loading: int = 0
    """How many requests find it loading its model: 503, without Retry-After."""
    refuses_parts: bool = False
    """A message's content is text. A list of parts is added to text in its template, which fails."""
    schema_error: tuple[int, str] | None = None
    """Status and message of its answer to `response_format: json_schema`."""
    object_error: tuple[int, str] | None = None
    """The same for `json_object`."""
    roles: tuple[str, ...] = ("system", "developer", "user", "assistant", "tool")
    context_tokens: int | None = None
    context_error: str = ""
    context_type: str = ""
    model: str | None = None
    """The model that its responses name, whichever was asked for."""
    numbers_errors: bool = False
    """The code of an error is its status, as a number."""

    def refusal(self, body: dict[str, Any], *, number: int, tokens: int) -> tuple[int, ErrorBody] | None:
        """Status and error of its answer to the request of that number, from 0 on; None if it is a good one."""
        if number < self.loading:
            return self._error(503, "Loading model", "unavailable_error")
        for message in body["messages"]:
            if message["role"] not in self.roles:
                return self._error(500, f"Input should be 'system', not {message['role']!r}", "internal_server_error")
            if self.refuses_parts and isinstance(message["content"], list):
                said = 'can only concatenate str (not "list") to str'
                return self._error(500, said, "internal_server_error")
        errors = {"json_schema": self.schema_error, "json_object": self.object_error}
        if (error := errors.get(body.get("response_format", {}).get("type"))) is not None:
            return self._error(*error, "internal_server_error")
        if self.context_tokens is not None and tokens > self.context_tokens:
            said = self.context_error.format(tokens=tokens, context=self.context_tokens)
            return self._error(400, said, self.context_type)
        return None

    def _error(self, status: int, message: str, kind: str) -> tuple[int, ErrorBody]:
        return status, {"message": message, "type": kind, "code": status if self.numbers_errors else None}


LLAMA_SERVER = Manners(
    loading=2,
    context_tokens=500,
    context_error="request ({tokens} tokens) exceeds the available context size ({context} tokens), try increasing it",
    context_type="exceed_context_size_error",
    model="/models/qwen3-8b-q4_k_m.gguf",
    numbers_errors=True,
)
LLAMA_CPP_SERVER = Manners(
    refuses_parts=True,
    schema_error=(
        500,
        "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': \"Input "
        "should be 'text' or 'json_object'\", 'input': 'json_schema'}",
    ),
    roles=("system", "user", "assistant", "tool", "function"),
    context_tokens=500,
    context_error="This model's maximum context length is {context} tokens. However, you requested {tokens} tokens "
    "({tokens} in the messages, None in the completion). Please reduce the length of the messages or completion.",
    context_type="invalid_request_error",
)
