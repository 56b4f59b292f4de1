"""A prompt as the agent: `prompt.py` reads and checks it, `agent.py` runs it, `model.py` knows pydantic-ai.

Only `prompt.py` is imported before a prompt job really runs.
"""

from __future__ import annotations
