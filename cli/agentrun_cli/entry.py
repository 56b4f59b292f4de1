"""The entry point of `agentrun`: commands that scripts call in a loop take a shortcut, the rest goes to `main`."""

from __future__ import annotations

import os
import signal
import sys

if sys.argv[0].rpartition("/")[2] == "agentrun" and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    # Before anything else is imported, so that Ctrl-C meanwhile exits without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    words = sys.argv[1:]
    if "_AGENTRUN_COMPLETE" in os.environ:
        from agentrun_cli import completing

        completing.main()
        os._exit(0)
    from agentrun_cli.inside import command as inside

    if inside.is_ours(words):
        sys.exit(inside.run(words[0], words[1:]))
    from agentrun_cli.main import main

    main()
