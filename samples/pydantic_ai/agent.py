"""An agent from pydantic-ai that answers letters, and asks a person before it pays money back."""

import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

sys.path.append(str(Path(__file__).resolve().parent.parent))
import loopback_model  # a model on this machine; with a real one, Agent("openai:gpt-5-mini", …) is all it takes

model = OpenAIChatModel("loopback", provider=OpenAIProvider(base_url=loopback_model.start(), api_key="none"))
agent = Agent(model, name="letters", instructions="Answer the letter. Pay back what came broken.")
ORDERS = {1001: "a lamp, 39.00, sent", 1002: "a kettle, 25.00, delivered", 1003: "a book, 12.50, sent"}


@agent.tool_plain
def look_up_order(order: int) -> str:
    """What was ordered, its price, and where it is."""
    return ORDERS.get(order, "delivered")


@agent.tool_plain(requires_approval=True)
def refund(order: int, amount: float) -> str:
    """Pay money back. A person is asked first: the item waits, and the others continue."""
    return f"{amount:.2f} paid back"
