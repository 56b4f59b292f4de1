"""For all tests."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import require_linux

NOBODY = 65534

# Where the tests themselves are run by nohup, or in the background of a script, what they start would ignore these.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)


# Launches register their state folders for `status --all`: not in the home of whoever runs the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="agentrun-registry-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.fixture
def proc() -> None:
    """The test reads Linux's /proc."""
    require_linux()


@pytest.fixture
def ordinary_folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder of a user who is not root, as whom the test runs: root may read and write everything."""
    if os.geteuid() != 0:
        yield tmp_path
        return
    require_linux()
    # Not below tmp_path, which only root may enter.
    folder = Path(tempfile.mkdtemp(prefix="agentrun-ordinary-")).resolve()
    os.chown(folder, NOBODY, NOBODY)
    # The real user too, whom `os.access` asks about; the saved one is the way back.
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield folder
    finally:
        os.setresuid(0, 0, 0)
        shutil.rmtree(folder)
