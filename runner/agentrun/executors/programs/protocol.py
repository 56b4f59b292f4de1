"""What the runner and the programs it runs agree on; nothing is imported, as programs' own commands need it too."""

from __future__ import annotations

CHANNEL_VARIABLE = "AGENTRUN_CHANNEL"
"""The environment variable with the path of the launch's socket."""
LINE_LIMIT_BYTES = 32 * 1024 * 1024
"""The longest line of JSON, in either direction."""
OUTPUT_LIMIT_BYTES = 16 * 1024 * 1024
"""The longest output of a program, and of a command that `agentrun step` runs."""
SKIPPED, CANNOT_RUN, NOT_FOUND = 77, 126, 127
"""Exit codes: the item is skipped; the program cannot be executed; there is no such program."""
