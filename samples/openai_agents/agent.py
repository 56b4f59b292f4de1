"""An agent from the OpenAI Agents SDK that answers letters, and asks a person before it pays money back."""

import sys
from pathlib import Path

from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

sys.path.append(str(Path(__file__).resolve().parent.parent))
import loopback_model  # a model on this machine; with a real one, Agent(model="gpt-5-mini", …) is all it takes

client = AsyncOpenAI(base_url=loopback_model.start(), api_key="none", max_retries=0)
set_tracing_disabled(True)  # traces go to OpenAI, and there is no key
ORDERS = {1001: "a lamp, 39.00, sent", 1002: "a kettle, 25.00, delivered", 1003: "a book, 12.50, sent"}


@function_tool
def look_up_order(order: int) -> str:
    """What was ordered, its price, and where it is."""
    return ORDERS.get(order, "delivered")


@function_tool(needs_approval=True)
def refund(order: int, amount: float) -> str:
    """Pay money back. A person is asked first: the item waits, and the others continue."""
    return f"{amount:.2f} paid back"


agent = Agent(
    name="letters",
    instructions="Answer the letter. Pay back what came broken.",
    model=OpenAIChatCompletionsModel("loopback", openai_client=client),
    tools=[look_up_order, refund],
)
