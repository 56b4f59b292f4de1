"""What workers of a Dask cluster of our own load first."""

from __future__ import annotations

import os
from typing import Any


def dask_setup(worker: Any) -> None:
    """Called by Dask. A Ctrl-C goes to every process of the terminal: here it would end the worker, and with it items
    that have a grace to finish. The end of the runner still ends it, as Dask sees to that."""
    if os.getsid(0) != os.getpid():
        os.setsid()
