"""For all tests."""

from __future__ import annotations

import signal

# Where the tests themselves are run by nohup, or in the background of a script, what they start would ignore these.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)
