"""Where the command `agentrun` begins: what scripts call in a loop goes a short way, the rest to `main`."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        # Ctrl-C while the rest is imported ends it without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = sys.argv[1:]
    from agentrun_cli import inside

    if inside.is_ours(words):
        sys.exit(inside.run(words[0], words[1:]))
    from agentrun_cli.main import main

    main()
