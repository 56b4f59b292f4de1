"""Why no new items are started."""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.errors import AgentrunError


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why no new items are started. `exit_code` is the launch's, unless everything is settled anyway."""

    exit_code: int
    text: str
    hint: str = ""
    error: AgentrunError | None = None
    """The error of the source, if that is the reason."""
    flags: str = ""
    """The flags that the command to continue needs."""
    resume_at: str = ""
    """When the reason is expected to have passed, if that is known."""
    waits_for: str = ""
    """What passes by then, in a few words: `openai's quota`."""
    probe_at: str = ""
    """When to try whether it has passed, if nobody knows."""
    by: str = ""
    """The limit that was reached: budget, failures, limit, only, pilot, until or max_time."""
    has_grace: bool = False
    """Attempts in flight are cancelled when the grace period is over."""
    is_at_once: bool = False
    """Attempts in flight are cancelled at once."""

    @property
    def passes_at(self) -> str:
        """When it has passed, or is tried whether it has; empty if waiting does not help."""
        return self.resume_at or self.probe_at

    @property
    def gravity(self) -> int:
        """Of several reasons the gravest counts, as in the table of exit codes: signals, then 75, then 4."""
        return 2 if self.exit_code > 128 else 1 if self.exit_code == 75 else 0
