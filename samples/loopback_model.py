"""A model for the samples of frameworks: on this machine, offline, without a key, and it costs nothing.

It speaks the chat completions of the OpenAI API and answers letters to a shop: it looks up the order that a letter
names, pays back what came broken, and then says what it did. It knows the tools `look_up_order` and `refund`.
"""

import json
import re
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

_ids = count(1)


@cache
def start() -> str:
    """Start the server, once; the address to give as `base_url`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The next message of the model: a call of a tool, or what it did."""
    letter = " ".join(_text(message["content"]) for message in messages if message["role"] == "user")
    order = (re.findall(r"[Oo]rder (\d+)", letter) or ["0"])[-1]
    results = [_text(message["content"]) for message in messages if message["role"] == "tool"]
    if not results:
        return _call("look_up_order", order=int(order))
    if "broken" in letter and len(results) == 1:
        price = (re.findall(r"\d+\.\d\d", results[0]) or ["0.00"])[0]
        return _call("refund", order=int(order), amount=float(price))
    return {"role": "assistant", "content": f"Order {order}: {results[-1]}"}


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{next(_ids)}", "type": "function", "function": function}],
    }


def _text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content)
    return content or ""


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = answer(asked["messages"])
        reply = {
            "id": f"chatcmpl-{next(_ids)}",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [
                {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
            ],
            "usage": {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60},
        }
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
