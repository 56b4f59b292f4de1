"""The entry point of `agentrun`: commands that scripts call in a loop take a shortcut, the rest goes to `main`."""

# These are part of the interpreter: before any file is imported, Ctrl-C is made to exit without a traceback.
import _signal  # type: ignore[import-not-found]
import sys

if sys.argv[0].rpartition("/")[2] == "agentrun" and _signal.getsignal(_signal.SIGINT) != _signal.SIG_IGN:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
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
