"""The agents of drafts, one of each kind: the lines of the job file, and the files."""

from __future__ import annotations

LINES = {
    "function": """\
agent = "agent.py:agent"            # file:function; or any program:
# command = ["./agent.sh", "{path}"]    # the item is on its standard input too, as JSON""",
    "prompt": """\
prompt = "@prompt.md"               # a file; or the text itself, with {text} where the item's text goes
model = "openai:gpt-5-mini"         # or anthropic:…, google:…
# base_url = "http://localhost:11434/v1"    # a server of your own that speaks the OpenAI API
# schema = "answer.json"            # a JSON Schema: the output is then an object""",
    "command": """\
command = ["./agent.sh", "{path}"]  # any program; the item is on its standard input too, as JSON
parse = "json"                      # what it prints is JSON; without this line, text""",
    "openai": 'agent = "agent.py:Agent"            # file:class, or file:function',
    "anthropic": 'agent = "agent.py:Agent"            # file:class, or file:function',
    "litellm": 'agent = "agent.py:agent"            # file:function',
    "langgraph": 'agent = "agent.py:agent"            # the graph itself, or a function that makes it',
    "openai-agents": 'agent = "agent.py:agent"            # the agent itself',
    "pydantic-ai": 'agent = "agent.py:agent"            # the agent itself',
}
_FUNCTION = '''\
"""The agent: called once for each item. What it returns is the item's output."""

from agentrun import Fail, Item


def agent(item: Item) -> dict[str, object]:
    # item.text is the content, item.path the file, item.key its name. Call your model here.
    words = item.text.split()
    if not words:
        # This item fails for good, and the others continue. Other errors are retried first.
        raise Fail("the file is empty")
    return {"words": len(words), "longest": max(words, key=len), "first": item.text.splitlines()[0]}
'''
_PROMPT = """\
Summarise the text below in one sentence. Answer with that sentence only.

{text}
"""
_COMMAND = """\
#!/bin/sh
# The agent: run once for each item. What it prints is the item's output.
# Exit 0: done. 65: this item fails for good. 75: try again later. 77: skipped. Any other: retried, then failed.
set -eu
path=$1

[ -s "$path" ] || { echo "the file is empty" >&2; exit 65; }
printf '{"words": %d, "bytes": %d}\\n' "$(wc -w <"$path")" "$(wc -c <"$path")"

# With a model, for example (curl and jq; put needs_env = ["OPENAI_API_KEY"] into job.toml):
#
# question='{model: "gpt-5-mini", messages: [{role: "user", content: ("Summarise in one sentence:\\n" + $text)}]}'
# answer=$(jq -n --rawfile text "$path" "$question" |
#     curl -sS --fail-with-body --max-time 120 https://api.openai.com/v1/chat/completions \\
#         -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" -d @-) || {
#     printf '%s' "$answer" | tr '\\n' ' ' >&2  # the server's reason, on one line: agentrun failures shows the last one
#     exit 1
# }
# printf '%s' "$answer" | agentrun usage --response -
# printf '%s' "$answer" | jq '{summary: .choices[0].message.content}'
"""
_OPENAI = '''\
"""The agent: called once for each item. What it returns is the item's output."""

from agentrun import Context, Fail, Item
from openai import AsyncOpenAI

MODEL = "gpt-5-mini"
INSTRUCTIONS = "Summarise the text in one sentence. Answer with that sentence only."


class Agent:
    """Made once, so that all items share its connections."""

    def __init__(self) -> None:
        # No retries here: agentrun retries, waits where the server asks for it, and keeps to the rate and the budget.
        self.client = AsyncOpenAI(timeout=120, max_retries=0)

    async def __call__(self, item: Item, ctx: Context) -> dict[str, object]:
        response = await self.client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": item.text}],
        )
        ctx.usage(response)  # tokens, and their price where it is known
        choice = response.choices[0]
        if choice.finish_reason == "length":
            # This item fails for good, and the others continue. Other errors are retried first.
            raise Fail("the answer was cut off")
        return {"summary": choice.message.content}

    async def aclose(self) -> None:
        await self.client.close()
'''
_ANTHROPIC = '''\
"""The agent: called once for each item. What it returns is the item's output."""

from agentrun import Context, Fail, Item
from anthropic import AsyncAnthropic

MODEL = "claude-haiku-4-5"
INSTRUCTIONS = "Summarise the text in one sentence. Answer with that sentence only."


class Agent:
    """Made once, so that all items share its connections."""

    def __init__(self) -> None:
        # No retries here: agentrun retries, waits where the server asks for it, and keeps to the rate and the budget.
        self.client = AsyncAnthropic(timeout=120, max_retries=0)

    async def __call__(self, item: Item, ctx: Context) -> dict[str, object]:
        response = await self.client.messages.create(
            model=MODEL,
            max_tokens=1024,
            system=INSTRUCTIONS,
            messages=[{"role": "user", "content": item.text}],
        )
        ctx.usage(response)  # tokens, and their price where it is known
        if response.stop_reason == "max_tokens":
            # This item fails for good, and the others continue. Other errors are retried first.
            raise Fail("the answer was cut off; raise max_tokens")
        return {"summary": "".join(block.text for block in response.content if block.type == "text")}

    async def aclose(self) -> None:
        await self.client.close()
'''
_LITELLM = '''\
"""The agent: called once for each item. What it returns is the item's output."""

import litellm
from agentrun import Context, Fail, Item

MODEL = "openai/gpt-5-mini"  # provider/model; needs_env in job.toml names its key
INSTRUCTIONS = "Summarise the text in one sentence. Answer with that sentence only."


async def agent(item: Item, ctx: Context) -> dict[str, object]:
    response = await litellm.acompletion(
        model=MODEL,
        messages=[{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": item.text}],
        timeout=120,
        # No retries here: agentrun retries, waits where the server asks for it, and keeps to the rate and the budget.
        max_retries=0,
        num_retries=0,
    )
    ctx.usage(response)  # tokens, and their price where it is known
    choice = response.choices[0]
    if choice.finish_reason == "length":
        # This item fails for good, and the others continue. Other errors are retried first.
        raise Fail("the answer was cut off")
    return {"summary": choice.message.content}
'''
_LANGGRAPH = '''\
"""The agent: a graph, run for each item. Its last message is the item's output.

Finished nodes are remembered: an item that is resumed calls no model and no tool twice.
"""

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model

# No retries here: agentrun retries, waits where the server asks for it, and keeps to the rate and the budget.
model = init_chat_model("openai:gpt-5-mini", timeout=120, max_retries=0)


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


agent = create_agent(
    model,
    tools=[count_words],
    system_prompt="Summarise the text in one sentence, and add how many words it has, as count_words counts them.",
)
'''
_OPENAI_AGENTS = '''\
"""The agent: run for each item. Its final output is the item's output.

Model responses and tool calls are remembered: an item that is resumed makes none of them twice.
"""

from agents import Agent, function_tool


# needs_approval=True: a person is asked before each call, and the item waits. Answer with: agentrun review
@function_tool
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


agent = Agent(
    name="Summary",
    model="gpt-5-mini",
    instructions="Summarise the text in one sentence, and add how many words it has, as count_words counts them.",
    tools=[count_words],
)
'''
_PYDANTIC_AI = '''\
"""The agent: run for each item. Its output is the item's output.

Model responses and tool calls are remembered: an item that is resumed makes none of them twice.
"""

from pydantic import BaseModel
from pydantic_ai import Agent


class Summary(BaseModel):
    sentence: str
    words: int


agent = Agent(
    "openai:gpt-5-mini",
    name="summary",
    output_type=Summary,
    instructions="Summarise the text in one sentence, and count its words with count_words.",
)


# requires_approval=True: a person is asked before each call, and the item waits. Answer with: agentrun review
@agent.tool_plain
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())
'''
FILES = {
    "function": {"agent.py": _FUNCTION},
    "prompt": {"prompt.md": _PROMPT},
    "command": {"agent.sh": _COMMAND},
    "openai": {"agent.py": _OPENAI},
    "anthropic": {"agent.py": _ANTHROPIC},
    "litellm": {"agent.py": _LITELLM},
    "langgraph": {"agent.py": _LANGGRAPH},
    "openai-agents": {"agent.py": _OPENAI_AGENTS},
    "pydantic-ai": {"agent.py": _PYDANTIC_AI},
}
