"""Agents of the OpenAI Agents SDK.

agent = "support.py:agent"          # in the job file: an agents.Agent itself; or, in a function of one's own:

from agentrun.frameworks import openai_agents

async def answer(item, ctx):
    result = await openai_agents.run(agent, item.text, ctx=ctx, max_turns=20)
    return result.final_output
"""

from agentrun.frameworks.openai_agents.agent import agent_of, run

__all__ = ["agent_of", "run"]
